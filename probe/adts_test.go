package probe

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// adtsFrame is a frame of AAC-LC with a payload. blocks is one less than the number of its blocks.
func adtsFrame(rate, channels, blocks int, payload string, checksum bool) []byte {
	head, absent := 7, 1
	if checksum {
		head, absent = 9, 0
	}
	n := head + len(payload)
	b := []byte{0xFF, 0xF0 | byte(absent), byte(1<<6 | rate<<2 | channels>>2), byte(channels<<6 | n>>11), byte(n >> 3), byte(n<<5) | 0x1F, 0xFC | byte(blocks)}
	if checksum {
		b = append(b, 0, 0)
	}
	return append(b, payload...)
}

// openedADTS opens a file for counting, without an ffmpeg that is there.
func openedADTS(t testing.TB, file []byte) (track, error) {
	t.Helper()
	s, err := newSource(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	s.ffmpeg = &ffmpeg.Command{}
	return openADTS(t.Context(), s)
}

func TestADTS(t *testing.T) {
	t.Parallel()
	frame := adtsFrame(8, 1, 0, "payload", false) // 16 kHz mono
	three := bytes.Repeat(frame, 3)
	for _, c := range []struct {
		name   string
		file   []byte
		frames int64 // sample frames; 0: it is refused
		says   string
	}{
		{"three frames", three, 3072, ""},
		{"one frame", frame, 1024, ""},
		{"with checksums", bytes.Repeat(adtsFrame(8, 1, 0, "payload", true), 4), 4096, ""},
		{"ID3v2 in the middle", join(three, id3v2(100), three), 6144, ""},
		{"junk before and in the middle", join([]byte("junk\xff\xf1"), three, []byte("\xff\xf1junk"), three), 6144, "are no audio"},
		{"the last frame cut off", join(three, frame[:10]), 3072, "cut off"},
		{"another rate", join(three, bytes.Repeat(adtsFrame(4, 1, 0, "x", false), 3)), 0, "from AAC with 16000 Hz and 1 channels to AAC with 44100 Hz"},
		{"another number of channels", join(three, bytes.Repeat(adtsFrame(8, 2, 0, "x", false), 3)), 0, "and 2 channels"},
		{"several blocks", join(three, bytes.Repeat(adtsFrame(8, 1, 3, "x", false), 3)), 0, "several blocks, the first at byte 42,"},
		{"no number of channels", bytes.Repeat(adtsFrame(8, 0, 0, "x", false), 3), 0, "how many channels"},
		{"too much junk", join(three, make([]byte, 70_000), three), 0, "damaged"},
	} {
		file, err := openedADTS(t, c.file)
		n := int64(0)
		if err == nil {
			n, err = file.count(t.Context(), 1<<40)
		}
		if c.frames == 0 {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", c.name, err, c.says)
			}
			continue
		}
		if err != nil || n != c.frames {
			t.Errorf("%s: %d, %v; want %d", c.name, n, err, c.frames)
			continue
		}
		if a := file.about(); a.rate != 16000 || a.channels != 1 || a.container != "adts" || a.codec != "aac" || !strings.Contains(strings.Join(a.warnings, " "), c.says) {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
	for name, file := range map[string][]byte{
		"a rate that does not exist": bytes.Repeat(adtsFrame(13, 1, 0, "x", false), 3), "frames shorter than their headers": bytes.Repeat(adtsFrame(8, 1, 0, "", false), 3),
		"Layer I": bytes.Repeat([]byte{0xFF, 0xF7, 0x60, 0x40, 1, 0x1F, 0xFC, 0}, 3), "a header": frame[:6],
	} {
		if sniffADTS(file) {
			t.Errorf("%s is taken for ADTS", name)
		}
	}
}

// The packets are the frames without headers, and the setup says what the headers said.
func TestADTSPackets(t *testing.T) {
	t.Parallel()
	for _, checksum := range []bool{false, true} {
		opened, err := openedADTS(t, bytes.Repeat(adtsFrame(8, 2, 0, "payload", checksum), 3))
		if err != nil {
			t.Fatal(err)
		}
		st := opened.(*walkedTrack).stream
		if !bytes.Equal(st.setup, []byte{0x14, 0x10}) { // object type 2, rate 8, 2 channels
			t.Errorf("the setup is %x", st.setup)
		}
		packets := st.packets(false)
		for range 3 {
			if p, err := packets.next(t.Context()); err != nil || string(p.data) != "payload" || p.frames != 1024 {
				t.Errorf("%q, %d frames, %v", p.data, p.frames, err)
			}
		}
		if _, err := packets.next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	}
}

func TestADTSDecodes(t *testing.T) {
	t.Parallel()
	file := handedFile(t, "golden/tone.aac")
	p := New(Config{FFmpeg: needFFmpeg(t)})
	audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
	if err != nil || audio.SampleRate != 16000 || audio.Channels != 1 || audio.Duration != durationOf(8*1024, 16000) {
		t.Errorf("%+v, %v", audio, err)
	}
	pcm, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
	if err != nil || len(pcm) != 8*1024 {
		t.Fatalf("%d samples, %v", len(pcm), err)
	}
	power := 0.0
	for _, v := range pcm[2048:6144] {
		power += float64(v) * float64(v) / 4096
	}
	if power < 0.07 || power > 0.09 { // of a sine of 0.4
		t.Errorf("the power is %v", power)
	}
}

func TestADTSNeedsFFmpeg(t *testing.T) {
	t.Parallel()
	file := handedFile(t, "aac_adts_24k.aac")
	if _, err := New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file))); aviary.CodeOf(err) != aviary.CodeMediaTypeUnsupported ||
		!strings.Contains(err.Error(), "AAC") {
		t.Errorf("without ffmpeg: %v", err)
	}
}

// Counting needs no ffmpeg: whatever the bytes are, it ends, says what is wrong, and goes no faster than 1,024 frames in 8 bytes.
func FuzzADTS(f *testing.F) {
	seeds(f, "aac_adts_")
	f.Add(handedFile(f, "golden/tone.aac"))
	f.Add(join(bytes.Repeat(adtsFrame(4, 2, 0, "x", true), 4), id3v2(9), []byte("junk"), bytes.Repeat(adtsFrame(4, 2, 0, "yz", false), 3)))
	f.Fuzz(func(t *testing.T, file []byte) {
		examine(t, file)
		opened, err := openedADTS(t, file)
		if err != nil {
			refused(t, err)
			return
		}
		n, err := opened.count(t.Context(), 1<<40)
		refused(t, err)
		if n < 0 || n > 1024*int64(len(file)/8) {
			t.Fatalf("%d frames in %d bytes", n, len(file))
		}
	})
}
