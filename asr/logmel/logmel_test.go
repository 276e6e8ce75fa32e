package logmel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// golden is the part of the reference vectors for this stage: NeMo's own
// FilterbankFeatures in float32, on signal(24000) with 16 mel bins.
type golden struct {
	Shape       [2]int    `json:"shape"` // mels, frames
	SignalFirst []float64 `json:"signal_first8"`
	SignalLast  []float64 `json:"signal_last4"`
	Features    []float64 `json:"features"` // mel-major
}

func readGolden(t *testing.T) golden {
	t.Helper()
	data, err := os.ReadFile("testdata/features.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// signal is a reproducible test signal: noise, a steady tone and a fading one.
func signal(n int) []float32 {
	x := make([]float32, n)
	state := uint32(12345)
	for i := range x {
		state = state*1664525 + 1013904223
		u := float64(state>>8)/(1<<24) - 0.5
		t := float64(i) / SampleRate
		x[i] = float32(0.1*u + 0.3*math.Sin(2*math.Pi*440*t) + 0.2*math.Sin(2*math.Pi*1750*t)*math.Exp(-2*t))
	}
	return x
}

func newExtractor(t testing.TB, mels int) *Extractor {
	t.Helper()
	e, err := New(Config{SampleRate: SampleRate, Window: Window, Hop: Hop, NFFT: NFFT, Preemphasis: Preemphasis, Mels: mels})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func extract(t testing.TB, mels int, pcm []float32) Features {
	t.Helper()
	f, err := newExtractor(t, mels).Extract(context.Background(), pcm)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// raw gives the log-mels before normalization.
func raw(t testing.TB, mels int, pcm []float32) []float32 {
	t.Helper()
	dst := make([]float32, int(FrameCount(Samples(len(pcm))))*mels)
	if err := newExtractor(t, mels).logMels(context.Background(), pcm, dst); err != nil {
		t.Fatal(err)
	}
	return dst
}

// tolerance is the project's for features against the float32 reference.
const tolerance = 1e-4

func TestGoldenFeatures(t *testing.T) {
	t.Parallel()
	g := readGolden(t)
	x := signal(24000)
	for i, want := range g.SignalFirst {
		if math.Abs(float64(x[i])-want) > 1e-7 {
			t.Fatalf("signal[%d] = %v, want %v: the generator is wrong", i, x[i], want)
		}
	}
	for i, want := range g.SignalLast {
		if got := float64(x[len(x)-4+i]); math.Abs(got-want) > 1e-7 {
			t.Fatalf("signal[-%d] = %v, want %v: the generator is wrong", 4-i, got, want)
		}
	}
	mels, frames := g.Shape[0], g.Shape[1]
	f := extract(t, mels, x)
	if int(f.Frames) != frames || f.Mels != mels || len(f.Data) != frames*mels {
		t.Fatalf("%d frames of %d mels, want %d of %d", f.Frames, f.Mels, frames, mels)
	}
	worst := 0.0
	for m := range mels {
		for k := range frames {
			worst = max(worst, math.Abs(float64(f.Data[k*mels+m])-g.Features[m*frames+k]))
		}
	}
	t.Logf("largest difference from the reference: %.2g", worst)
	if worst > tolerance {
		t.Errorf("features differ from the reference by %v, expected at most %v", worst, tolerance)
	}
}

// TestReferenceValues holds single values of both widths that are in use
// against the reference, before and after normalization.
func TestReferenceValues(t *testing.T) {
	t.Parallel()
	x := signal(16000)
	for _, tt := range []struct {
		mels       int
		bins       [3]int
		raw        map[int][3]float64 // by frame
		normalized map[int][3]float64
	}{
		{
			80, [3]int{0, 40, 79},
			map[int][3]float64{0: {-8.6380749, 0.0013550, -6.7951765}, 50: {-13.0461502, -0.8997723, -4.5967913}, 99: {-10.9441471, -2.9670377, -3.7806964}},
			map[int][3]float64{0: {3.4984157, 0.8250828, -5.0005984}, 50: {-0.5776684, 0.0371273, -0.5784459}, 99: {1.3660238, -1.7705120, 1.0631664}},
		},
		{
			128, [3]int{0, 64, 127},
			map[int][3]float64{0: {-8.7409515, -0.2270680, -6.7484961}, 50: {-12.9142427, -1.4439962, -4.5905614}, 99: {-11.4221468, -3.6920159, -4.1927776}},
			map[int][3]float64{0: {3.0888262, 1.1025181, -4.0044017}, 50: {-0.1934090, 0.0470637, -0.4327798}, 99: {0.9801036, -1.9026669, 0.2255965}},
		},
	} {
		before, after := raw(t, tt.mels, x), extract(t, tt.mels, x)
		for i, m := range tt.bins {
			for _, k := range []int{0, 50, 99} {
				at := k*tt.mels + m
				if want := tt.raw[k][i]; math.Abs(float64(before[at])-want) > tolerance {
					t.Errorf("%d mels, frame %d, bin %d: log-mel %v, want %v", tt.mels, k, m, before[at], want)
				}
				if want := tt.normalized[k][i]; math.Abs(float64(after.Data[at])-want) > tolerance {
					t.Errorf("%d mels, frame %d, bin %d: feature %v, want %v", tt.mels, k, m, after.Data[at], want)
				}
			}
		}
	}
}

func TestFrameCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[Samples]Frames{
		-1: 0, 0: 0, 1: 0, 159: 0, 160: 1, 319: 1, 320: 2, 400: 2, 15999: 99, 16000: 100, 16160: 101, 3600 * SampleRate: 360000,
	} {
		if got := FrameCount(n); got != want {
			t.Errorf("FrameCount(%d) = %d, want %d", n, got, want)
		}
		if n >= 0 && n < 20000 {
			if f := extract(t, 80, signal(int(n))); f.Frames != want || len(f.Data) != 80*int(want) {
				t.Errorf("%d samples gave %d frames, %d values, want %d frames", n, f.Frames, len(f.Data), want)
			}
		}
	}
}

func TestOneFrameIsAllZeros(t *testing.T) {
	t.Parallel()
	f := extract(t, 128, signal(200))
	if f.Frames != 1 || slices.ContainsFunc(f.Data, func(x float32) bool { return x != 0 }) {
		t.Errorf("%d frames, %v", f.Frames, f.Data)
	}
}

// TestSilence: the log-mel of nothing is ln(2^-24), and normalized it is zero, not
// NaN, as the standard deviation has a floor.
func TestSilence(t *testing.T) {
	t.Parallel()
	x := make([]float32, 8000)
	for _, v := range raw(t, 128, x) {
		if math.Abs(float64(v)+16.635532) > 1e-6 {
			t.Fatalf("log-mel of silence is %v, want -16.635532", v)
		}
	}
	for _, v := range extract(t, 128, x).Data {
		if v != 0 {
			t.Fatalf("feature of silence is %v, want 0", v)
		}
	}
}

func TestSamplesThatAreNotFiniteAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := signal(4000)
		x[1234] = float32(bad)
		_, err := newExtractor(t, 80).Extract(t.Context(), x)
		if err == nil || !strings.Contains(err.Error(), "not finite") {
			t.Errorf("%v: got error %v", bad, err)
		}
	}
	// The largest finite samples are no reason to fail.
	x := []float32{math.MaxFloat32, -math.MaxFloat32}
	for _, v := range extract(t, 80, slices.Repeat(x, 2000)).Data {
		if v != v {
			t.Fatal("NaN from finite samples")
		}
	}
}

func TestNewRefusesOtherFrontEnds(t *testing.T) {
	t.Parallel()
	good := Config{SampleRate: SampleRate, Window: Window, Hop: Hop, NFFT: NFFT, Preemphasis: Preemphasis, Mels: 80}
	for _, change := range []func(*Config){
		func(c *Config) { c.SampleRate = 8000 },
		func(c *Config) { c.Window = 320 },
		func(c *Config) { c.Hop = 200 },
		func(c *Config) { c.NFFT = 1024 },
		func(c *Config) { c.Preemphasis = 0 },
		func(c *Config) { c.Mels = 0 },
		func(c *Config) { c.Mels = 257 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// TestTheNumberOfWorkersDoesNotMatter: every bit is the same.
func TestTheNumberOfWorkersDoesNotMatter(t *testing.T) {
	x := signal(5 * SampleRate)
	want := extract(t, 80, x)
	for _, n := range []int{1, 3, 16} {
		old := runtime.GOMAXPROCS(n)
		got := extract(t, 80, x)
		runtime.GOMAXPROCS(old)
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("%d workers give other features", n)
		}
	}
}

// TestExtractAllocatesPerCallNotPerFrame compares two lengths.
func TestExtractAllocatesPerCallNotPerFrame(t *testing.T) {
	e := newExtractor(t, 80)
	allocations := func(seconds int) float64 {
		x := signal(seconds * SampleRate)
		return testing.AllocsPerRun(3, func() {
			if _, err := e.Extract(context.Background(), x); err != nil {
				t.Fatal(err)
			}
		})
	}
	if short, long := allocations(1), allocations(4); long > short+5 {
		t.Errorf("%v allocations for 1 s, %v for 4 s", short, long)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newExtractor(t, 128).Extract(ctx, signal(SampleRate)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// In the middle of an hour, which takes seconds.
	x := make([]float32, 3600*SampleRate)
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error, 1)
	e := newExtractor(t, 128)
	go func() {
		_, err := e.Extract(ctx, x)
		done <- err
	}()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second): // generous: the machine may be busy
		t.Error("a canceled extraction goes on")
	}
	// And in each pass of the normalization.
	for passes := range 3 {
		f := Features{Frames: 2, Mels: 1, Data: []float32{1, 2}}
		ctx := &endsAfter{Context: t.Context(), looks: passes}
		if err := normalize(ctx, f); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled in pass %d: %v", passes+1, err)
		}
	}
}

// endsAfter is a context that is found canceled after some looks at it.
type endsAfter struct {
	context.Context //nolint:containedctx // it is a context

	looks int
}

func (e *endsAfter) Err() error {
	if e.looks--; e.looks < 0 {
		return context.Canceled
	}
	return nil
}

func BenchmarkExtract(b *testing.B) {
	for _, mels := range []int{80, 128} {
		b.Run(fmt.Sprintf("%d mels", mels), func(b *testing.B) {
			e := newExtractor(b, mels)
			const seconds = 30
			x := signal(seconds * SampleRate)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Extract(context.Background(), x); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(seconds*float64(b.N)/b.Elapsed().Seconds(), "RTFx")
		})
	}
}
