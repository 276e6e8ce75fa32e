package probe

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func TestFLACFiles(t *testing.T) {
	t.Parallel()
	const s = time.Second
	second := flacFrame(16000, 1, 16, 1000)
	head := func(samples int64) []byte { return streamInfo(16000, 1, 16, samples, true) }
	block := func(kind byte, length int, body []byte) []byte {
		return append([]byte{kind, byte(length >> 16), byte(length >> 8), byte(length)}, body...)
	}
	open := streamInfo(16000, 1, 16, 16000, false)
	bad := bytes.Clone(second)
	bad[len(bad)-3] ^= 1 // a sample: the checksum is wrong
	badHeader := bytes.Clone(second)
	badHeader[4] ^= 1
	stereoHead := streamInfo(16000, 2, 24, 16000, true)
	for _, c := range []struct {
		name   string
		parts  [][]byte
		want   time.Duration
		code   aviary.Code
		detail string
	}{
		{"plain", [][]byte{head(16000), second}, s, "", ""},
		{"two frames, no total", [][]byte{head(0), second, second}, 2 * s, "", ""},
		{"metadata", [][]byte{open, block(1, 10, make([]byte, 10)), block(4, 3, []byte("abc")), block(0x80|6, 0, nil), second}, s, "", ""},
		{"ID3 in front", [][]byte{[]byte("ID3\x03\x00\x00\x00\x00\x00\x03abc"), head(16000), second}, s, "", ""},
		{"two ID3 in front", [][]byte{[]byte("ID3\x03\x00\x00\x00\x00\x00\x03abcID3\x04\x00\x10\x00\x00\x00\x003DI\x04\x00\x10\x00\x00\x00\x00"), head(16000), second}, s, "", ""},
		{"ID3v1 behind", [][]byte{head(16000), second, []byte("TAG"), make([]byte, 125)}, s, "", ""},
		{"100 kB behind that look like frames now and then", [][]byte{head(16000), second, bytes.Repeat([]byte("\xff\xf8\x70\x00"), 25000)}, s, "", ""},
		{"stereo, 24 bits", [][]byte{stereoHead, flacFrame(16000, 2, 24, 1<<22)}, s, "", ""},
		{"a millisecond more than claimed", [][]byte{head(15984), second}, s, "", ""},
		{"a millisecond less than claimed", [][]byte{head(16016), second}, s, "", ""},

		{"claims 2 s", [][]byte{head(32000), second}, 0, aviary.CodeAudioBroken, "claims 2.000 s"},
		{"claims 0.5 s", [][]byte{head(8000), second}, 0, aviary.CodeAudioBroken, "claims 0.500 s"},
		{"claims what its bytes cannot hold", [][]byte{head(1<<36 - 1), second}, 0, aviary.CodeAudioBroken, "more than 13 bytes can hold"},
		{"no frames", [][]byte{head(0)}, 0, aviary.CodeAudioBroken, "no audio"},
		{"no frames but junk", [][]byte{head(0), make([]byte, 1000)}, 0, aviary.CodeAudioBroken, "no audio"},
		{"cut in a frame", [][]byte{head(0), second, second[:len(second)-1]}, 0, aviary.CodeAudioBroken, "damaged at byte 55"},
		{"cut in a frame's header", [][]byte{head(32000), second, second[:5]}, 0, aviary.CodeAudioBroken, "claims 2.000 s"},
		{"wrong checksum", [][]byte{head(0), bad, second}, 0, aviary.CodeAudioBroken, "damaged at byte 42"},
		{"wrong checksum in a header", [][]byte{head(0), second, badHeader, second}, 0, aviary.CodeAudioBroken, "damaged between bytes 55 and 68"},
		{"junk between frames", [][]byte{head(0), second, bytes.Repeat([]byte{0xFF}, 70000), second}, 0, aviary.CodeAudioBroken, "damaged between bytes 55 and 70055"},
		{"two files", [][]byte{head(16000), second, head(16000), second}, 0, aviary.CodeAudioBroken, "damaged between"},
		{"another rate", [][]byte{head(0), second, rawFrame(16000, 4, 0, 16, 0)}, 0, aviary.CodeAudioBroken, "another sample rate"},
		{"another rate in all frames", [][]byte{streamInfo(96000, 1, 16, 0, true), rawFrame(16000, 4, 0, 16, 0)}, 0, aviary.CodeAudioBroken, "another sample rate"},
		{"other channels", [][]byte{head(0), rawFrame(16000, 0, 1, 16, 0)}, 0, aviary.CodeAudioBroken, "number of channels"},
		{"rate 0", [][]byte{streamInfo(0, 1, 16, 0, true), second}, 0, aviary.CodeAudioBroken, "damaged"},
		{"rate 655350", [][]byte{streamInfo(655350, 1, 16, 0, true), second}, 0, aviary.CodeAudioBroken, "655350 Hz"},
		{"rate 1", [][]byte{streamInfo(1, 1, 16, 0, true), second}, 0, aviary.CodeAudioBroken, "1 Hz"},
		{"1 bit", [][]byte{streamInfo(16000, 1, 1, 0, true), second}, 0, aviary.CodeAudioBroken, "damaged"},
		{"no STREAMINFO", [][]byte{[]byte("fLaC"), block(0x84, 3, []byte("abc")), second}, 0, aviary.CodeAudioBroken, "does not start with STREAMINFO"},
		{"short STREAMINFO", [][]byte{[]byte("fLaC"), block(0x80, 10, make([]byte, 10)), second}, 0, aviary.CodeAudioBroken, "does not start with STREAMINFO"},
		{"two STREAMINFO", [][]byte{open, block(0, 34, make([]byte, 34)), block(0x81, 0, nil), second}, 0, aviary.CodeAudioBroken, "two STREAMINFO"},
		{"metadata of 16 MB that is not there", [][]byte{open, block(0x84, 1<<24-1, make([]byte, 100))}, 0, aviary.CodeAudioBroken, "16777215 bytes"},
		{"2^32-1 comments", [][]byte{open, block(0x84, 16, put(le, uint32(0), uint32(math.MaxUint32), uint64(0))), second}, s, "", ""},
		{"metadata without an end", [][]byte{open, block(1, 0, nil)}, 0, aviary.CodeAudioBroken, "ends within its metadata"},
		{"10,000 metadata blocks", [][]byte{open, bytes.Repeat(block(1, 0, nil), 10000), block(0x81, 0, nil), second}, 0, aviary.CodeAudioBroken, "more than 1000"},
		{"forbidden metadata", [][]byte{open, block(0xFF, 0, nil), second}, 0, aviary.CodeAudioBroken, "forbidden"},
		{"nothing but ID3", [][]byte{[]byte("ID3\x03\x00\x00\x00\x00\x00\x03abc")}, 0, aviary.CodeAudioBroken, "nothing else"},
		{"100 ID3", [][]byte{bytes.Repeat([]byte("ID3\x03\x00\x00\x00\x00\x00\x00"), 100), head(0), second}, 0, aviary.CodeAudioBroken, "too many ID3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := bytes.Join(c.parts, nil)
			p := New(Config{MaxDuration: time.Hour})
			audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
			if aviary.CodeOf(err) != c.code || audio.Duration != c.want {
				t.Errorf("Probe: %v, %v; want %v, %q", audio.Duration, err, c.want, c.code)
			}
			if err != nil && !strings.Contains(err.Error(), c.detail) {
				t.Errorf("Probe: %v; want a word of %q", err, c.detail)
			}
			pcm, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), time.Hour)
			if aviary.CodeOf(err) != c.code || (pcm.Duration()-c.want).Abs() > slack {
				t.Errorf("Decode: %v, %v; want %v, %q", pcm.Duration(), err, c.want, c.code)
			}
		})
	}
}

// The two channels of a frame are mixed by their mean, at the scale of the stream's width.
func TestFLACLevels(t *testing.T) {
	t.Parallel()
	for _, width := range []int{8, 16, 24, 32} {
		for _, channels := range []int{1, 2, 5, 8} {
			frame := flacFrame(100, channels, width, 1<<(width-2))
			file := append(streamInfo(16000, channels, width, 100, true), frame...)
			pcm, err := New(Config{}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
			if err != nil || len(pcm) != 100 || pcm[0] != 0.5 || pcm[99] != 0.5 {
				t.Errorf("%d channels of %d bits: %d samples, %v", channels, width, len(pcm), err)
			}
		}
	}
}

func TestFLACTooLongByItsOwnAccountIsNotCounted(t *testing.T) {
	t.Parallel()
	file := flacOf(16000, 3*3600*16000, 3*3600*16000)
	reads := 0
	file.onRead = func() { reads++ }
	audio, err := New(Config{MaxDuration: time.Hour}).Probe(t.Context(), file, file.size)
	if err != nil || audio.Duration != 3*time.Hour || reads != 1 {
		t.Errorf("%v, %v after %d reads; want 3 h after one", audio.Duration, err, reads)
	}
}
