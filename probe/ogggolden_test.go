package probe

import (
	"bytes"
	"testing"
)

// Some samples of files, at the file's own rate, as ffmpeg decodes them: see tools/probe-golden/ogg.sh. Vorbis and FLAC are the same but for rounding.
// Opus is compared with the reference decoder, which computes speech in integers: that alone makes -50 dB.
func TestOggGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file   string
		start  int // frames
		most   float64
		ffmpeg bool
	}{
		{"vorbis_managed.ogg", 4000, -120, false},
		{"vorbis_q10.ogg", 4000, -120, false},
		{"vorbis_5p1.ogg", 4000, -120, false},
		{"vorbis_ffmpeg.ogg", 4000, -75, false},
		{"oggflac_s24_stereo.oga", 4000, -138, false},
		{"opus_dtx.opus", 60000, -45, false},
		{"opus_silk_60ms.opus", 12000, -45, false},
		{"opus_hybrid.opus", 12000, -45, false},
		{"opus_120ms.opus", 12000, -45, false},
		{"opus_celt_stereo.opus", 4000, -75, false},
		{"opus_celt_2ms5.opus", 4000, -75, false},
		{"opus_5p1.opus", 4000, -75, true},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			p := New(Config{})
			if c.ffmpeg {
				p.cfg.FFmpeg = needFFmpeg(t)
			}
			file := handedFile(t, "golden/"+c.file)
			tr, err := p.open(t.Context(), bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			channels := tr.about().channels
			held, err := tr.count(t.Context(), 1<<40)
			if err != nil {
				t.Fatal(err)
			}
			got, want := decodeWhole(t, p, file), goldenSamples(t, c.file+".f32")
			if int64(len(got)) != held*int64(channels) {
				t.Errorf("%d samples, counted %d frames of %d", len(got), held, channels)
			}
			got = got[c.start*channels:]
			if len(got) < len(want) {
				t.Fatalf("%d samples, want %d", len(got), len(want))
			}
			if d := difference(got[:len(want)], want); d > c.most {
				t.Errorf("differs from the golden samples by %.1f dB, want below %.0f dB", d, c.most)
			}
		})
	}
}
