package probe

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/aviary-asr/aviary"
)

// The first samples of files as ffmpeg decodes, mixes and resamples them (tools/probe-golden). At equal rates nothing but rounding may differ.
// Otherwise the pass band is compared: near the Nyquist frequency two good resamplers need not agree.
func TestGoldenPCM(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, golden string
		nyquist      float64 // the lower one, Hz; 0 where nothing is resampled
	}{
		{"rf64_16k.wav", "rf64_16k.wav", 0},
		{"wav_rifx_big_endian.wav", "rf64_16k.wav", 0}, // the same audio; ffmpeg 5.1 takes its bytes in the wrong order
		{"flac_id3v1_suffix.flac", "flac_id3v1_suffix.flac", 0},
		{"wav_8k_mono_u8.wav", "wav_8k_mono_u8.wav", 4000},
		{"wav_8k_alaw.wav", "wav_8k_alaw.wav", 4000},
		{"wav_22050_mono_s16.wav", "wav_22050_mono_s16.wav", 8000},
		{"wav_11025_stereo_s16.wav", "wav_11025_stereo_s16.wav", 5512.5},
		{"flac_11025_mono.flac", "flac_11025_mono.flac", 5512.5},
		{"flac_44k1_5p1.flac", "flac_44k1_5p1.flac", 8000},
		{"flac_96k_stereo_s24.flac", "flac_96k_stereo_s24.flac", 8000},
		{"golden/mulaw_8k_mono.wav", "mulaw_8k_mono", 4000},
		{"golden/s24_12k_mono.wav", "s24_12k_mono", 6000},
		{"golden/f64_22050_stereo.wav", "f64_22050_stereo", 8000},
		{"golden/u8_32k_stereo.wav", "u8_32k_stereo", 8000},
		{"golden/s32_44100_stereo.wav", "s32_44100_stereo", 8000},
		{"golden/f32_96k_mono.wav", "f32_96k_mono", 8000},
		{"golden/s16_192k_mono.wav", "s16_192k_mono", 8000},
	} {
		file := handedFile(t, c.file)
		pcm, err := New(Config{}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		want := goldenSamples(t, c.golden+".f32")
		if len(want) > len(pcm) || len(want) < 4000 && len(want) < len(pcm)-1 {
			t.Errorf("%s: %d samples, want %d", c.file, len(pcm), len(want))
			continue
		}
		got, most := []float32(pcm[:len(want)]), -120.0
		if c.nyquist > 0 {
			got, want, most = lowPass(got, 0.85*c.nyquist), lowPass(want, 0.85*c.nyquist), -100
		}
		if d := difference(got, want); d > most {
			t.Errorf("%s: differs from the golden samples by %.1f dB, want below %.0f dB", c.file, d, most)
		}
	}
}

// lowPass keeps what is below hz, of x at 16 kHz, and drops the edges.
func lowPass(x []float32, hz float64) []float32 {
	const half = 200
	var taps [2*half + 1]float64
	for i := range taps {
		d := float64(i - half)
		taps[i] = 2 * hz / aviary.SampleRate
		if d != 0 {
			taps[i] = math.Sin(2*math.Pi*hz/aviary.SampleRate*d) / (math.Pi * d)
		}
		taps[i] *= 0.42 + 0.5*math.Cos(math.Pi*d/half) + 0.08*math.Cos(2*math.Pi*d/half) // Blackman
	}
	y := make([]float32, len(x)-2*half)
	for i := range y {
		sum := 0.0
		for j, c := range taps {
			sum += c * float64(x[i+j])
		}
		y[i] = float32(sum)
	}
	return y
}

func goldenSamples(t *testing.T, name string) []float32 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

// difference is the power of a-b against that of b, in dB.
func difference(a, b []float32) float64 {
	var signal, rest float64
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		signal += float64(b[i]) * float64(b[i])
		rest += d * d
	}
	return 10 * math.Log10(rest/signal+1e-30)
}
