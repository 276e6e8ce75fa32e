package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// A day of AAC, with a size for each of its packets, costs reading the table and no memory for it; and it is refused while it is still arriving.
func TestMP4OfADay(t *testing.T) {
	const packets = 24 * 3600 * 8000 / 1024
	p := aacMP4(packets)
	p.media = p.media[:4000]
	p.stsc = mp4Full("stsc", uint32(1), uint32(1), uint32(1000), uint32(1))
	p.stco = mp4Full("stco", uint32(packets/1000), bytes.Repeat(put(be, uint32(p.mediaAt())), packets/1000))
	p.stsz = mp4Full("stsz", uint32(0), uint32(packets), bytes.Repeat([]byte{0, 0, 0, 4}, packets))
	file := p.file()
	var audio aviary.Audio
	var err error
	reads := 0
	r := tiled{head: file, size: int64(len(file)), onRead: func() { reads++ }}
	if n := allocates(func() { audio, err = New(Config{FFmpeg: installed}).Probe(t.Context(), r, r.size) }); n > probeBytes/2 {
		t.Errorf("Probe allocates %d bytes", n)
	}
	if err != nil || audio.Duration != 24*time.Hour || reads > 200 {
		t.Errorf("%+v, %v, %d reads of %d bytes", audio, err, reads, len(file))
	}
	audio, err = New(Config{FFmpeg: installed, MaxDuration: time.Hour}).Probe(t.Context(), r, r.size)
	if err != nil || audio.Duration <= time.Hour {
		t.Errorf("%+v, %v", audio, err)
	}
	p = aacMP4(packets)
	p.first = true
	file = p.file()[:2000]
	if err := New(Config{FFmpeg: installed, MaxDuration: time.Hour}).Peek(t.Context(), bytes.NewReader(file), int64(len(file))); aviary.CodeOf(err) != aviary.CodeAudioTooLong {
		t.Errorf("the start of 24 h: %v", err)
	}
	if err := New(Config{FFmpeg: installed, MaxDuration: 25 * time.Hour}).Peek(t.Context(), bytes.NewReader(file), int64(len(file))); err != nil {
		t.Errorf("the start of 24 h: %v", err)
	}
}

// Failures of the reader are not taken for faults of the file, wherever they come.
func TestMP4ReaderFails(t *testing.T) {
	t.Parallel()
	onFire := errors.New("disk on fire")
	for _, name := range []string{"mp4_flac.mp4", "mp4_flac_frag.mp4", "mp4_opus.mp4", "mp4_vorbis.mp4", "pcm_s16be.mov"} {
		b := goldenFile(t, name)
		for good := int64(0); good < int64(len(b)); good += 1 + int64(len(b))/50 {
			for _, cause := range []error{onFire, io.EOF} {
				_, err := New(Config{}).Decode(t.Context(), failingReader{bytes.NewReader(b), good, cause}, int64(len(b)), 0)
				if aviary.CodeOf(err) != aviary.CodeInternal || errors.Is(cause, onFire) && !errors.Is(err, onFire) {
					t.Errorf("%s fails with %v after %d bytes: %v, want an internal error", name, cause, good, err)
				}
			}
		}
	}
}

// Each cut, and each byte that is another one, gives an answer. Of files in fragments, whole fragments may be missing at the end: nothing says how
// many there are.
func TestMP4Mutations(t *testing.T) {
	t.Parallel()
	for _, c := range goldenMP4 {
		b := goldenFile(t, c.file)
		p := New(Config{FFmpeg: installed, MaxDuration: time.Hour})
		for n := range len(b) {
			if n > 40 && n%31 != 0 {
				continue
			}
			_, err := p.Probe(t.Context(), bytes.NewReader(b[:n]), int64(n))
			refused(t, err)
			behind := string(b[min(n+4, len(b)):min(n+8, len(b))])
			fragmentsMiss := inFragments.MatchString(c.file) && (behind == "moof" || behind == "mfra")
			if err == nil && !fragmentsMiss {
				t.Errorf("%s: the first %d of %d bytes are accepted", c.file, n, len(b))
			}
		}
		for n := 0; n < len(b); n += 43 {
			for _, v := range []byte{0, 0xFF} {
				old := b[n]
				b[n] = v
				audio, err := p.Probe(t.Context(), bytes.NewReader(b), int64(len(b)))
				b[n] = old
				refused(t, err)
				if err == nil && (audio.Duration <= 0 || audio.Duration > math.MaxInt64/2) {
					t.Errorf("%s with %d at %d: %+v", c.file, v, n, audio)
				}
			}
		}
	}
}

func FuzzMP4(f *testing.F) {
	seeds(f, "m4a_", "mp4_", "mov_", "3gp_")
	for _, c := range goldenMP4 {
		f.Add(goldenFile(f, c.file))
	}
	f.Add(aacMP4(16).file())
	f.Add(pcmMP4(lpcmEntry(24, 4, 4), make([]byte, 400), 4, 100).file())
	f.Fuzz(func(t *testing.T, file []byte) {
		if file = bytes.Clone(file); len(file) >= 8 && !sniffMP4(file) { // spend no time on other containers
			copy(file[4:], "ftyp")
		}
		examine(t, file)
		var err error
		p := New(Config{MaxDuration: time.Minute, FFmpeg: installed}) // so that what needs it is counted
		if n := allocates(func() { _, err = p.Probe(context.Background(), bytes.NewReader(file), int64(len(file))) }); n > probeBytes+(256<<10) {
			t.Fatalf("Probe of %d bytes allocates %d", len(file), n)
		}
		refused(t, err)
	})
}
