package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/mp3"
)

// mp3Parts are the frames of a handed file whose first one is a tag.
func mp3Parts(t testing.TB, name string) (tag []byte, frames [][]byte) {
	t.Helper()
	rest := handedFile(t, name)
	rest = rest[tagBytes(rest, int64(len(rest))):]
	for len(rest) >= mp3.HeaderBytes {
		h, ok := mp3.ParseHeader(rest)
		if !ok || h.Bytes() > len(rest) {
			t.Fatalf("%s is not whole", name)
		}
		frames = append(frames, rest[:h.Bytes()])
		rest = rest[h.Bytes():]
	}
	return frames[0], frames[1:]
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// claiming is a tag with another number of frames.
func claiming(tag []byte, frames int) []byte {
	tag = bytes.Clone(tag)
	i := max(bytes.Index(tag, []byte("Info")), bytes.Index(tag, []byte("Xing")))
	binary.BigEndian.PutUint32(tag[i+8:], uint32(frames))
	return tag
}

// vbri is a frame with a tag of that kind.
func vbri(frame []byte, frames int) []byte {
	b := make([]byte, len(frame))
	copy(b, frame[:4])
	copy(b[36:], put(be, "VBRI", uint16(1), uint16(0), uint16(75), uint32(0), uint32(frames)))
	return b
}

// noSound is a frame of 417 bytes at 44.1 kHz, stereo, whose data is all zeros.
func noSound() []byte { return append([]byte{0xFF, 0xFB, 0x90, 0x04}, make([]byte, 413)...) }

// id3v2 is a tag of n bytes besides its header.
func id3v2(n int) []byte {
	return append([]byte{'I', 'D', '3', 4, 0, 0, byte(n >> 21 & 127), byte(n >> 14 & 127), byte(n >> 7 & 127), byte(n & 127)}, bytes.Repeat([]byte{0xFF}, n)...)
}

// ape is a tag of n bytes between its header and its footer.
func ape(n int) []byte {
	ends := func(flags uint32) []byte {
		return put(le, "APETAGEX", uint32(2000), uint32(n+32), uint32(1), flags, uint64(0))
	}
	return join(ends(0xA0000000), bytes.Repeat([]byte{0xFF, 0xFB, 0xF0}, n/3+1)[:n], ends(0x80000000))
}

// mp3Case is a file, and what is to be said of it.
type mp3Case struct {
	name    string
	file    []byte
	frames  int64 // sample frames; 0: it is broken
	says    string
	warning string
}

// mp3Cases are made of the frames of a handed file, its tag, and what else stands in files.
func mp3Cases(t *testing.T) []mp3Case {
	tag, frames := mp3Parts(t, "mp3_cbr_44k1_stereo.mp3") // LAME's; 59 frames and 1.5 s
	_, other := mp3Parts(t, "mp3_cbr_22050_mono.mp3")
	bare := join(frames...)
	mono := bytes.Repeat(append([]byte{0xFF, 0xFB, 0x90, 0xC4}, make([]byte, 413)...), 5)
	const each = 1152
	n := int64(len(frames))
	id3v1 := append([]byte("TAG"), bytes.Repeat([]byte{0xFF, 0xFB}, 62)...)
	id3v1 = append(id3v1, 0)
	junk := bytes.Repeat([]byte("no frame \xff\xfb\x90 of audio "), 25)
	return []mp3Case{
		{"tag and frames", join(tag, bare), 66150, "", ""},
		{"no tag", bare, n * each, "", ""},
		{"one frame", frames[0], each, "", ""},
		{"two frames", join(frames[0], frames[1]), 2 * each, "", ""},
		{"nothing but a tag", tag, 0, "no audio", ""},
		{"a tag that claims nothing", join(claiming(tag, 0), bare), n*each - 1105, "", ""},
		{"a tag that claims one frame less", join(claiming(tag, len(frames)-1), bare), 66150 - each, "", ""},
		{"a tag that claims one frame more", join(claiming(tag, len(frames)+1), bare), n*each - 1105, "", ""},
		{"a tag that claims half", join(claiming(tag, len(frames)/2), bare), 0, "but there are 1.541 s", ""},
		{"a tag that claims twice as much", join(claiming(tag, 2*len(frames)), bare), 0, "but there are 1.541 s", ""},
		{"a tag that claims years", join(claiming(tag, 1<<32-1), bare), 0, "but there are 1.541 s", ""},
		{"VBRI", join(vbri(frames[0], len(frames)), bare), n * each, "", ""},
		{"VBRI that claims twice as much", join(vbri(frames[0], 2*len(frames)), bare), 0, "but there are 1.541 s", ""},
		{"zeros before", join(make([]byte, 1500), bare), n * each, "", "first 1500 bytes"},
		{"a piece of a frame before", join(frames[0][100:], bare), n * each, "", "are no audio"},
		{"ID3v2 before, and zeros", join(id3v2(5000), make([]byte, 700), tag, bare), 66150, "", "first 700 bytes"},
		{"ID3v2 in the middle", join(bare, id3v2(200_000), bare), 2 * n * each, "", ""},
		{"ID3v1 and ID3v2 in the middle", join(bare, id3v1, id3v2(300), bare, id3v1), 2 * n * each, "", ""},
		{"APE and ID3v1 behind", join(tag, bare, ape(70_000), id3v1), 66150, "", ""},
		{"a tag that claims more than there is behind", join(bare, ape(3000)[:2000]), n * each, "", ""},
		{"zeros behind", join(bare, make([]byte, 100_000)), n * each, "", ""},
		{"text behind", join(bare, junk), n * each, "", ""},
		{"junk in the middle", join(bare, junk, bare), 2 * n * each, "", fmt.Sprintf("%d bytes between frames, the first at byte %d,", len(junk), len(bare))},
		{"zeros in the middle", join(bare, make([]byte, 60_000), bare), 2 * n * each, "", "60000 bytes between frames"},
		{"too much in the middle", join(bare, make([]byte, 70_000), bare), 0, fmt.Sprintf("from byte %d on, 70000 bytes", len(bare)), ""},
		{"too much in several places", join(bare, make([]byte, 40_000), bare, make([]byte, 40_000), bare), 0, fmt.Sprintf("from byte %d on, 80000 bytes", len(bare)), ""},
		{"a header lost", join(bare, frames[0][1:], bare), 2 * n * each, "", fmt.Sprintf("%d bytes between frames", len(frames[0])-1)},
		{"the last frame cut off", join(bare, frames[0][:200]), n * each, "", "cut off"},
		{"the last frame of what a tag claims cut off", join(tag, bare[:len(bare)-100]), (n-1)*each - 1105, "", "cut off"},
		{"half of what a tag claims", join(tag, bare)[:9000], 0, "1.541 s of audio follow", ""},
		{"joined files of different rates", join(bare, join(other...)), 0, fmt.Sprintf("changes at byte %d: from MPEG-1 Layer III with 44100 Hz and 2 channels to MPEG-2 Layer III with 22050 Hz", len(bare)), ""},
		{"joined files of different channels", join(bare, mono), 0, "and 1 channels", ""},
		{"joined files of different channels, with junk between them", join(bare, junk, mono), 0, "and 1 channels", ""},
		{"joined files without tags", join(bare, bare), 2 * n * each, "", ""},
		{"joined files with tags", join(tag, bare, tag, bare), 0, "1.541 s of audio follow, but there are 3.109 s", ""},
		{"a frame of Layer I", bytes.Repeat(append([]byte{0xFF, 0xFF, 0x10, 0x04}, make([]byte, 28)...), 5), 0, "MPEG Layer I", ""},
		{"a frame of Layer II", bytes.Repeat(append([]byte{0xFF, 0xFD, 0x10, 0x04}, make([]byte, 100)...), 5), 0, "MPEG Layer II", ""},
	}
}

func TestMP3(t *testing.T) {
	t.Parallel()
	for _, c := range mp3Cases(t) {
		p := New(Config{})
		report, err := p.Inspect(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
		pcm, decodeErr := p.Decode(t.Context(), bytes.NewReader(c.file), int64(len(c.file)), 0)
		if c.frames == 0 {
			if err == nil || decodeErr == nil || !strings.Contains(err.Error(), c.says) || err.Error()[6:] != decodeErr.Error()[7:] {
				t.Errorf("%s: %v; %v; want %q", c.name, err, decodeErr, c.says)
			}
			continue
		}
		rate := int64(report.SampleRate)
		if err != nil || decodeErr != nil || report.Duration != durationOf(c.frames, 44100) || report.Container != "mp3" || report.Codec != "mp3" || rate != 44100 {
			t.Errorf("%s: %+v, %v, %v; want %d frames", c.name, report, err, decodeErr, c.frames)
			continue
		}
		if want := (c.frames*aviary.SampleRate + rate - 1) / rate; int64(len(pcm)) != want {
			t.Errorf("%s: %d samples, want %d", c.name, len(pcm), want)
		}
		if got := strings.Join(report.Warnings, " "); c.warning == "" && got != "" || !strings.Contains(got, c.warning) {
			t.Errorf("%s: the warnings are %q, want %q", c.name, got, c.warning)
		}
	}
}

// What holds MP3 and is known to be something else is not taken for MP3 with junk before it.
func TestMP3WithinOthers(t *testing.T) {
	t.Parallel()
	_, frames := mp3Parts(t, "mp3_cbr_44k1_stereo.mp3")
	for head, want := range map[string]string{
		"PK\x03\x04" + strings.Repeat("\x00", 40): "a ZIP archive", "%PDF-1.7\n": "a PDF document", "\x00\x00\x01\xba" + strings.Repeat("\x01", 30): "an MPEG program stream",
	} {
		file := join([]byte(head), join(frames...))
		_, err := New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		if aviary.CodeOf(err) != aviary.CodeMediaTypeUnsupported || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	text := bytes.Repeat([]byte("Frames start with \xff\xfb\x90\x64, and \xff\xf1\x50\x80\x01\x1f\xfc. "), 200)
	if _, err := New(Config{}).Probe(t.Context(), bytes.NewReader(text), int64(len(text))); aviary.CodeOf(err) != aviary.CodeMediaTypeUnsupported {
		t.Errorf("text: %v", err)
	}
}

// The samples, with delay and padding taken off: see TestGoldenPCM.
func TestGoldenMP3(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		nyquist float64
	}{{"mp3_cbr_44k1_stereo.mp3", 8000}, {"mp3_cbr_22050_mono.mp3", 8000}, {"mp3_cbr_8k_mono.mp3", 4000}} {
		b := handedFile(t, c.name)
		pcm, err := New(Config{}).Decode(t.Context(), bytes.NewReader(b), int64(len(b)), 0)
		want := goldenSamples(t, c.name+".f32")
		if err != nil || len(want) != 4000 || len(pcm) < len(want) {
			t.Errorf("%s: %d samples, %v, want %d", c.name, len(pcm), err, len(want))
			continue
		}
		if d := difference(lowPass(pcm[:len(want)], 0.85*c.nyquist), lowPass(want, 0.85*c.nyquist)); d > -90 {
			t.Errorf("%s: differs from the golden samples by %.1f dB, want below -90 dB", c.name, d)
		}
	}
}

// A day in frames that are as short as can be, whatever a tag claims: counting ends at the guard, or finds the lie.
func TestMP3Bombs(t *testing.T) {
	t.Parallel()
	tag, _ := mp3Parts(t, "mp3_cbr_8k_mono.mp3")
	frame := append([]byte{0xFF, 0xE3, 0x18, 0xC4}, make([]byte, 68)...) // 72 ms in 72 bytes
	const day = 24 * 3600 * 8000 / 576
	for _, c := range []struct {
		name string
		head []byte
		want aviary.Code
	}{
		{"no tag", nil, aviary.CodeAudioTooLong},
		{"a tag that claims 2 s", claiming(tag, 28), aviary.CodeAudioBroken},
		{"a tag that claims a day", claiming(tag, day), aviary.CodeAudioTooLong},
	} {
		reads := 0
		file := tiled{head: c.head, tile: frame, size: int64(len(c.head)) + day*int64(len(frame)), onRead: func() { reads++ }}
		p := New(Config{MaxDuration: guard})
		audio, err := p.Probe(t.Context(), file, file.size)
		if err == nil {
			err = aviary.CheckDuration("test", audio.Duration, guard)
		}
		if aviary.CodeOf(err) != c.want {
			t.Errorf("%s: %v, %v", c.name, audio.Duration, err)
		}
		if most := int(file.size>>15) + 3; reads > most {
			t.Errorf("%s: %d reads, want at most %d", c.name, reads, most)
		}
		pcm, err := p.Decode(t.Context(), file, file.size, 10*time.Second)
		if code := aviary.CodeOf(err); code != c.want && code != aviary.CodeAudioTooLong || len(pcm) > 0 {
			t.Errorf("%s: decoded to %v, %v", c.name, pcm.Duration(), err)
		}
	}
}

// Exactly the limit is accepted, and one frame more is not.
func TestMP3Guard(t *testing.T) {
	t.Parallel()
	frame := append([]byte{0xFF, 0xE3, 0x18, 0xC4}, make([]byte, 68)...)
	for n, long := range map[int64]bool{50000: false, 50001: true} { // an hour at 8 kHz
		file := tiled{tile: frame, size: n * int64(len(frame))}
		audio, err := New(Config{MaxDuration: guard}).Probe(t.Context(), file, file.size)
		if err != nil || audio.Duration > guard != long {
			t.Errorf("%d frames: %v, %v", n, audio.Duration, err)
		}
	}
}

// The work for a large file without frames is linear, however it is made.
func TestMP3Junk(t *testing.T) {
	t.Parallel()
	_, frames := mp3Parts(t, "mp3_cbr_44k1_stereo.mp3")
	for _, tile := range []string{"\xff", "\xff\xfb\x90", "\xff\xfb\x92\x64\xff", "ID3\x04\x00\x00\x00\x00\x00\x00", "TAG", "APETAGEX" + strings.Repeat("\x00", 24)} {
		reads := 0
		file := tiled{head: join(frames...), tile: []byte(tile), size: 4 << 20, onRead: func() { reads++ }}
		if _, err := New(Config{}).Probe(t.Context(), file, file.size); err != nil && aviary.CodeOf(err) != aviary.CodeAudioBroken {
			t.Errorf("%q: %v", tile, err)
		}
		if reads > 4<<20>>14 {
			t.Errorf("%q: %d reads", tile, reads)
		}
	}
}

// A few damaged frames are silent, and said to be; a stream of them is refused.
func TestDamagedMP3(t *testing.T) {
	t.Parallel()
	_, frames := mp3Parts(t, "mp3_cbr_44k1_stereo.mp3")
	spoil := func(every int) []byte {
		var file []byte
		for i, frame := range frames {
			if frame = bytes.Clone(frame); i%every == every-1 {
				for j := 8; j < 36; j++ {
					frame[j] = 0xFF // the side information
				}
			}
			file = append(file, frame...)
		}
		return file
	}
	for _, c := range []struct {
		every int
		want  string
	}{{10, "5 of 59 MP3 frames are damaged"}, {1, "17 of the first 17 MP3 frames are damaged"}} {
		file := spoil(c.every)
		probed, err := New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		if err != nil || probed.Duration != durationOf(int64(len(frames))*1152, 44100) {
			t.Errorf("%d: %v, %v", c.every, probed.Duration, err)
		}
		var rec tape
		audio, err := New(Config{}).Normalize(t.Context(), bytes.NewReader(file), int64(len(file)), aviary.Normalizing{Limit: guard}, &rec)
		if c.every == 1 {
			if aviary.CodeOf(err) != aviary.CodeAudioBroken || !strings.Contains(err.Error(), c.want) {
				t.Errorf("all frames are damaged: %v", err)
			}
			continue
		}
		if err != nil || audio.Duration != probed.Duration || !strings.Contains(strings.Join(audio.Warnings, " "), c.want) {
			t.Errorf("one of %d frames is damaged: %+v, %v", c.every, audio, err)
		}
	}
}

func TestMP3Packets(t *testing.T) {
	t.Parallel()
	_, frames := mp3Parts(t, "mp3_cbr_44k1_stereo.mp3")
	_, other := mp3Parts(t, "mp3_cbr_22050_mono.mp3")
	for _, c := range []struct {
		name   string
		packet []byte
		frames int64
		code   aviary.Code
	}{
		{"one frame", frames[0], 1152, ""},
		{"two frames", join(frames[0], frames[1]), 2304, ""},
		{"nothing", nil, 0, aviary.CodeAudioBroken},
		{"text", []byte("text"), 0, aviary.CodeAudioBroken},
		{"cut off", frames[0][:100], 0, aviary.CodeAudioBroken},
		{"a frame and a byte", append(bytes.Clone(frames[0]), 0), 0, aviary.CodeAudioBroken},
		{"free format", []byte{0xFF, 0xFB, 0x00, 0x04, 0}, 0, aviary.CodeMediaTypeUnsupported},
		{"Layer II", append([]byte{0xFF, 0xFD, 0x10, 0x04}, make([]byte, 100)...), 0, aviary.CodeAudioBroken},
	} {
		n, err := mp3PacketFrames(c.packet)
		if n != c.frames || aviary.CodeOf(err) != c.code {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
		d, err := newMP3Decoder(stream{rate: 44100, channels: 2})
		if err != nil {
			t.Fatal(err)
		}
		samples, err := d.decode(nil, c.packet)
		if c.code == "" && (err != nil || len(samples) != int(2*c.frames)) {
			t.Errorf("%s decodes to %d samples, %v", c.name, len(samples), err)
		}
	}
	d, err := newMP3Decoder(stream{rate: 44100, channels: 2})
	if err != nil {
		t.Fatal(err)
	}
	if samples, err := d.decode(nil, other[0]); err != nil || len(samples) != 2*576 { // as many as mp3PacketFrames says
		t.Errorf("a frame of another kind decodes to %d samples, %v", len(samples), err)
	}
}

func TestMP3Failures(t *testing.T) {
	t.Parallel()
	b := handedFile(t, "mp3_id3v2_art_200k.mp3")
	fire := errors.New("disk on fire")
	for _, good := range []int64{0, 5000, 205_000, int64(len(b)) - 1} {
		if _, err := New(Config{}).Probe(t.Context(), failingReader{bytes.NewReader(b), good, fire}, int64(len(b))); !errors.Is(err, fire) || aviary.CodeOf(err) != aviary.CodeInternal {
			t.Errorf("fails after %d bytes: %v", good, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	file := tiled{tile: noSound(), size: 400 << 20}
	file.onRead = cancel
	if _, err := New(Config{}).Probe(ctx, file, file.size); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Layer II is decoded by ffmpeg.
func TestLayerII(t *testing.T) {
	t.Parallel()
	file := handedFile(t, "golden/layer2.mp2")
	p := New(Config{FFmpeg: needFFmpeg(t)})
	audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
	if err != nil || audio.Container != "mp2" || audio.Codec != "mp2" || audio.Duration != durationOf(6*1152, 32000) {
		t.Errorf("%+v, %v", audio, err)
	}
	if pcm, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0); err != nil || len(pcm) != 3*1152 {
		t.Errorf("%d samples, %v", len(pcm), err)
	}
}

func FuzzMP3(f *testing.F) {
	seeds(f, "mp3_")
	tag, frames := mp3Parts(f, "mp3_cbr_44k1_stereo.mp3")
	_, small := mp3Parts(f, "mp3_cbr_8k_mono.mp3")
	f.Add(join(small[:12]...))
	f.Add(join(claiming(tag, 3), frames[0], frames[1], frames[2], id3v2(20), []byte("TAG")))
	f.Add(join(vbri(frames[0], 4), noSound(), noSound(), []byte("junk"), noSound(), noSound(), noSound(), ape(40)))
	f.Fuzz(func(t *testing.T, file []byte) { examine(t, file) })
}
