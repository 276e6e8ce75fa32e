package resample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// rates are usual ones, odd ones, and those on both sides of a change of method; fewRates has each method once.
var rates = []int{
	4000, 6000, 7350, 8000, 11025, 12000, 12345, 16000, 18900, 22050, 24000, 32000, 37800, 44056, 44100, 47250, 48000, 50000, 63999, 64000,
	88200, 96000, 100003, 176400, 192000, 352800, 383999, 384000,
}

var fewRates = []int{4000, 11025, 12345, 16000, 44100, 63999, 96000, 100003, 384000}

func convert(t testing.TB, from, to int, in []float32, blocks ...int) []float32 {
	t.Helper()
	r, err := New(from, to)
	if err != nil {
		t.Fatal(err)
	}
	var out []float32
	for len(in) > 0 {
		n := len(in)
		if len(blocks) > 0 {
			n = min(n, blocks[0])
			blocks = append(blocks[1:], blocks[0])
		}
		out = r.Append(out, in[:n])
		in = in[n:]
	}
	return r.Flush(out)
}

// sine is n samples of a tone at hz, starting at the given phase.
func sine(n, rate int, hz, phase float64) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(math.Sin(2*math.Pi*math.Mod(hz*float64(i)/float64(rate), 1) + phase))
	}
	return s
}

// tone fits a sine of hz to x, which starts at time start, and returns its amplitude and phase, and the RMS of what remains.
func tone(x []float32, rate int, hz float64, start int) (amplitude, phase, residual float64) {
	var ss, sc, cc, xs, xc float64
	at := func(i int) (float64, float64) {
		return math.Sincos(2 * math.Pi * math.Mod(hz*float64(start+i)/float64(rate), 1))
	}
	for i, v := range x {
		s, c := at(i)
		ss, sc, cc, xs, xc = ss+s*s, sc+s*c, cc+c*c, xs+float64(v)*s, xc+float64(v)*c
	}
	det := ss*cc - sc*sc
	a, b := (xs*cc-xc*sc)/det, (xc*ss-xs*sc)/det
	for i, v := range x {
		s, c := at(i)
		d := float64(v) - a*s - b*c
		residual += d * d
	}
	return math.Hypot(a, b), math.Atan2(b, a), math.Sqrt(residual / float64(len(x)))
}

func rms(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(len(x)))
}

func db(ratio float64) float64 { return 20 * math.Log10(ratio) }

// middle is x without the edges, where the filter sees the start and the end.
func middle(x []float32) ([]float32, int) {
	const edge = 400
	return x[edge : len(x)-edge], edge
}

func TestPassBandKeepsLevelAndPhase(t *testing.T) {
	t.Parallel()
	for _, from := range rates {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			t.Parallel()
			const to = 16000
			nyquist := float64(min(from, to)) / 2
			for _, part := range []float64{0.003, 0.1, 0.33, 0.5, 0.77, 0.9} {
				hz := part * nyquist
				out, start := middle(convert(t, from, to, sine(from/10, from, hz, 0.4)))
				amplitude, phase, residual := tone(out, to, hz, start)
				if math.Abs(db(amplitude)) > 0.1 {
					t.Errorf("%.0f Hz: level %+.3f dB, want within 0.1 dB", hz, db(amplitude))
				}
				if math.Abs(phase-0.4) > 1e-3 {
					t.Errorf("%.0f Hz: phase off by %.5f rad", hz, phase-0.4)
				}
				if d := db(residual * math.Sqrt2); d > -80 {
					t.Errorf("%.0f Hz: images, aliases and noise at %.1f dB, want below -80 dB", hz, d)
				}
			}
		})
	}
}

func TestStopBand(t *testing.T) {
	t.Parallel()
	const to = 16000
	for _, from := range rates {
		if from <= to {
			continue
		}
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			t.Parallel()
			for _, hz := range []float64{8000, 8100, 9000, 12345, 20000, 31000, 47999, 180000} {
				if hz > float64(from)/2 {
					continue
				}
				out, _ := middle(convert(t, from, to, sine(from/10, from, hz, 0.4)))
				if d := db(rms(out) * math.Sqrt2); d > -80 {
					t.Errorf("%.0f Hz: %.1f dB, want below -80 dB", hz, d)
				}
			}
		})
	}
}

// The image of a tone at f of an input below 16 kHz lies at rate - f, here in the stop band though the tone is in the transition band.
func TestImagesAreStopped(t *testing.T) {
	t.Parallel()
	for _, from := range []int{4000, 8000, 11025, 12000, 12345} {
		hz := 0.97 * float64(from) / 2
		out, start := middle(convert(t, from, 16000, sine(from/4, from, hz, 0)))
		if _, _, residual := tone(out, 16000, hz, start); db(residual*math.Sqrt2) > -80 {
			t.Errorf("from %d Hz: the image is at %.1f dB", from, db(residual*math.Sqrt2))
		}
	}
}

func TestImpulseStaysInPlace(t *testing.T) {
	t.Parallel()
	for _, from := range rates {
		in := make([]float32, from/4)
		in[from/8] = 1 // at 1/8 s, an output instant at any rate that 8 divides
		out := convert(t, from, 16000, in)
		peak := 0
		for i, v := range out {
			if v > out[peak] {
				peak = i
			}
		}
		want := float64(from/8) * 16000 / float64(from)
		if math.Abs(float64(peak)-want) > 0.51 {
			t.Errorf("from %d Hz: peak at %d, want %.2f", from, peak, want)
		}
		if from%8 != 0 || from == 16000 {
			continue
		}
		for d := 1; d < 200; d++ { // the filter is symmetric about an input that falls onto an output
			if diff := math.Abs(float64(out[peak-d] - out[peak+d])); diff > 1e-5*float64(out[peak]) {
				t.Errorf("from %d Hz: %d samples before and after the impulse differ by %g", from, d, diff)
				break
			}
		}
	}
}

func TestConstantStaysConstant(t *testing.T) {
	t.Parallel()
	for _, from := range rates {
		in := make([]float32, from/5)
		for i := range in {
			in[i] = 0.5
		}
		out, _ := middle(convert(t, from, 16000, in))
		for i, v := range out {
			if math.Abs(float64(v)-0.5) > 2e-6 {
				t.Errorf("from %d Hz: output %d of a constant 0.5 is %g", from, i, v)
				break
			}
		}
	}
}

func TestLengths(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, from := range rates {
		fresh, err := New(from, 16000)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 2, 3, 7, 13, 26, 27, 28, 57, 58, 59, 100, 1023, 1024, 1025, 5000 + random.IntN(3000)} {
			want := (n*16000 + from - 1) / from
			r := clone(fresh)
			if got := r.Length(int64(n)); got != int64(want) {
				t.Errorf("Length(%d) from %d Hz is %d, want %d", n, from, got, want)
			}
			early := r.Append(nil, make([]float32, n))
			if got := len(r.Flush(early)); got != want {
				t.Errorf("%d samples from %d Hz give %d, want %d", n, from, got, want)
			}
			if len(early) > want {
				t.Errorf("%d samples from %d Hz give %d before the flush, more than %d", n, from, len(early), want)
			}
		}
	}
	r, err := New(384000, 16000)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Length(math.MaxInt64), int64(384307168202282326); got != want {
		t.Errorf("Length overflows: %d, want %d", got, want)
	}
}

// clone is a Resampler that has heard nothing yet, without a new table.
func clone(fresh *Resampler) *Resampler {
	r := *fresh
	r.buf = slices.Clone(fresh.buf)
	r.halvers = nil
	for range fresh.halvers {
		r.halvers = append(r.halvers, newHalver())
	}
	return &r
}

func TestBlocksDoNotMatter(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for _, from := range fewRates {
		in := make([]float32, 3000+random.IntN(100))
		for i := range in {
			in[i] = 2*random.Float32() - 1
		}
		want := convert(t, from, 16000, in)
		for _, blocks := range [][]int{{1}, {7, 1, 0, 300}, {1024}, {1023, 1025}, {4096, 1}} {
			if got := convert(t, from, 16000, in, slices.Clone(blocks)...); !slices.Equal(got, want) {
				t.Errorf("from %d Hz: blocks of %v give other samples than one block", from, blocks)
			}
		}
	}
}

func TestEqualRatesCopy(t *testing.T) {
	t.Parallel()
	in := []float32{0.1, -0.2, 0.3}
	if got := convert(t, 16000, 16000, in); !slices.Equal(got, in) {
		t.Errorf("got %v", got)
	}
}

func TestOtherTargets(t *testing.T) {
	t.Parallel()
	for _, rate := range [][2]int{{16000, 48000}, {16000, 8000}, {4000, 384000}, {384000, 4000}, {44100, 48000}} {
		from, to := rate[0], rate[1]
		hz := float64(min(from, to)) / 5
		out, start := middle(convert(t, from, to, sine(from/5, from, hz, 0)))
		if amplitude, phase, _ := tone(out, to, hz, start); math.Abs(db(amplitude)) > 0.1 || math.Abs(phase) > 1e-3 {
			t.Errorf("%d to %d Hz: %.3f dB, %.5f rad", from, to, db(amplitude), phase)
		}
	}
}

func TestRatesOutOfRange(t *testing.T) {
	t.Parallel()
	for _, rate := range [][2]int{{0, 16000}, {-1, 16000}, {3999, 16000}, {384001, 16000}, {16000, 0}, {16000, 1 << 40}} {
		if _, err := New(rate[0], rate[1]); err == nil {
			t.Errorf("New(%d, %d) has no error", rate[0], rate[1])
		}
	}
}

func TestNothingIsAllocatedPerBlock(t *testing.T) {
	for _, from := range fewRates {
		r, err := New(from, 16000)
		if err != nil {
			t.Fatal(err)
		}
		in, out := make([]float32, 4096), make([]float32, 0, 40000)
		if n := testing.AllocsPerRun(5, func() { out = r.Append(out[:0], in) }); n != 0 {
			t.Errorf("from %d Hz: %v allocations per block", from, n)
		}
	}
}

func TestTablesAreBounded(t *testing.T) {
	t.Parallel()
	for from := MinRate; from <= MaxRate; from += 9973 {
		r, err := New(from, 16000)
		if err != nil {
			t.Fatal(err)
		}
		if size := 4 * len(r.table); size > 1_200_000 || r.taps > 8*58 || len(r.buf) > r.taps {
			t.Errorf("from %d Hz: table of %d bytes, %d taps", from, size, r.taps)
		}
	}
}

func FuzzBlocks(f *testing.F) {
	f.Add(44100, 1000, 1, 17)
	f.Add(96000, 3000, 100, 1)
	f.Fuzz(func(t *testing.T, from, n, a, b int) {
		if from < MinRate || from > MaxRate || n < 0 || n > 20000 || a < 1 || b < 1 {
			t.Skip()
		}
		in := sine(n, from, 1000, 0)
		if got, want := convert(t, from, 16000, in, a, b), convert(t, from, 16000, in); !slices.Equal(got, want) {
			t.Errorf("blocks of %d and %d give other samples than one block", a, b)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, from := range []int{8000, 11025, 22050, 44100, 48000, 96000, 100003, 384000} {
		b.Run(fmt.Sprint(from), func(b *testing.B) {
			r, err := New(from, 16000)
			if err != nil {
				b.Fatal(err)
			}
			in, out := sine(4096, from, 440, 0), make([]float32, 0, 40000)
			for b.Loop() {
				out = r.Append(out[:0], in)
			}
			b.ReportMetric(float64(b.N)*4096/float64(from)/b.Elapsed().Seconds(), "audio_s/s")
		})
	}
}
