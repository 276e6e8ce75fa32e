package parakeet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
)

func TestEncoded(t *testing.T) {
	for f, want := range map[Frames]EncoderFrames{0: 0, 1: 1, 8: 1, 9: 2, 150: 19, 3000: 375, 360_000: 45_000} {
		if got := f.Encoded(); got != want {
			t.Errorf("%d frames make %d encoder frames, want %d", f, got, want)
		}
	}
}

// TestLocalEqualsBandedFull holds local attention against the whole matrix of scores with a band mask in float64: sequences several times
// longer than the window and shorter than it, no multiple of anything, windows with Left != Right, every row from edge to edge.
func TestLocalEqualsBandedFull(t *testing.T) {
	t.Parallel()
	m := tiny(t, true, false)
	c := tinyConfig(true, false)
	ref := reference{c, tinyTensors(t, c)}
	s := m.NewSession()
	for _, frames := range []Frames{37, 805, 1607} { // 5, 101 and 201 encoder frames
		in := noise(frames, c.Mels, 5)
		for _, a := range []Attention{{4, 4}, {16, 16}, {3, 11}, {20, 2}, {0, 7}, {7, 0}, {0, 0}, {300, 500}} {
			_, want := ref.encode(in, a)
			within(t, fmt.Sprintf("%d frames, window %v", frames, a), encode(t, s, in, a), want.float32s(), 1e-4)
		}
	}
}

// TestLongFull goes beyond what the golden file covers: several row blocks and tiles of every kind.
func TestLongFull(t *testing.T) {
	t.Parallel()
	c := tinyConfig(false, false)
	in := noise(3201, c.Mels, 6) // 401 encoder frames
	_, want := reference{c, tinyTensors(t, c)}.encode(in, Full)
	within(t, "enc.final", encode(t, tiny(t, false, false).NewSession(), in, Full), want.float32s(), 1e-4)
}

// TestWideWindowEqualsFull: a window that covers the audio is full attention.
func TestWideWindowEqualsFull(t *testing.T) {
	m := tiny(t, false, false)
	s := m.NewSession()
	in := noise(333, 16, 7)
	n := int(in.Frames.Encoded())
	want := encode(t, s, in, Full)
	within(t, "window of n-1", encode(t, s, in, Attention{n - 1, n - 1}), want, 1e-5)
	within(t, "window of n", encode(t, s, in, Attention{n, n}), want, 1e-5)
	if distance(encode(t, s, in, Attention{n / 2, n / 2}), want) < 1e-3 {
		t.Error("half a window gives the same")
	}
}

// TestTiledSubsamplingEqualsUntiled: whatever the tile, and wherever its edges fall, the encoder frames are the same.
func TestTiledSubsamplingEqualsUntiled(t *testing.T) {
	t.Parallel()
	c := tinyConfig(false, false)
	ref := reference{c, tinyTensors(t, c)}
	for _, frames := range []Frames{1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 150, 500, 1000} {
		in := noise(frames, c.Mels, draws(frames))
		sub, _ := ref.encode(in, Attention{1, 1})
		want := sub.float32s()
		for _, tile := range []int{1, 2, 3, 8, 1000} {
			m := tiny(t, false, false)
			s := m.NewSession()
			if err := s.begin(in.Frames, Full); err != nil {
				t.Fatal(err)
			}
			got := tiled(t, s, in, tile)
			within(t, fmt.Sprintf("%d frames in tiles of %d", frames, tile), got, want, 1e-5*peak(want))
			s.Close()
		}
	}
}

// tiled runs the subsampling in tiles of any size, in an arena made for it.
func tiled(t *testing.T, s *Session, in LogMel, tile int) []float32 {
	t.Helper()
	l := newLayout(s.model.Config, 8*tile, in.Frames, Full)
	l.tile = min(tile, l.encoded)
	if buf, err := s.model.backend.Reserve(l.floats); err != nil {
		t.Fatal(err)
	} else {
		s.buf.Release()
		s.buf = buf
	}
	s.layout = l
	s.pass.x = l.x.in(s.buf)
	x := &s.pass.tiles
	x.mel, x.stem = l.mel.in(s.buf), l.stem.in(s.buf)
	x.depthwise1, x.pointwise1 = l.depthwise1.in(s.buf), l.pointwise1.in(s.buf)
	x.depthwise2, x.pointwise2 = l.depthwise2.in(s.buf), l.pointwise2.in(s.buf)
	if err := s.subsample(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	v := make([]float32, s.pass.x.Rows*s.pass.x.Cols)
	if err := s.model.backend.Read(t.Context(), v, s.pass.x); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestHourLocal: in an hour with local attention every frame is what it is in an excerpt around it that is longer than what it can hear, near
// the start, in the middle, across the edges of tiles and row blocks, and at the end.
func TestHourLocal(t *testing.T) {
	if testing.Short() {
		t.Skip("an hour of features")
	}
	t.Parallel()
	m := tiny(t, false, false)
	s := m.NewSession()
	const mels, width, frames = 16, 32, Frames(360_000 - 3)
	hour := noise(frames, mels, 21)
	window := Attention{6, 3}
	if _, err := s.Encode(t.Context(), hour, window); err != nil {
		t.Fatal(err)
	}
	whole := make([]float32, s.pass.x.Rows*width)
	if err := m.backend.Read(t.Context(), whole, s.pass.x); err != nil {
		t.Fatal(err)
	}
	// Two blocks, each hearing 6+4 frames back and 3+4 ahead, and the subsampling one each way.
	const hears = 2*(6+4) + 2
	last := int(frames.Encoded())
	for _, at := range []int{0, 250, 22_500, 31_999, last - 60} {
		from, to := max(0, at-hears), min(last, at+60+hears)
		excerpt := LogMel{Frames: min(frames, Frames(8*to)) - Frames(8*from)}
		excerpt.Values = hour.Values[8*from*mels : (8*from+int(excerpt.Frames))*mels]
		got := encode(t, m.NewSession(), excerpt, window)
		within(t, fmt.Sprintf("frames %d to %d", at, at+60), got[(at-from)*width:(at-from+60)*width], whole[at*width:(at+60)*width], 1e-5)
	}
}

// TestPositions: which frequencies were taken shows in how far the table is from the one that NeMo's formula gives; the distances
// were computed from the two references.
func TestPositions(t *testing.T) {
	const d = 1024
	w := frequencies(d)
	nemo := make([]float32, d/2)
	step := float32(-math.Log(10000) / d)
	for i := range nemo {
		nemo[i] = float32(math.Exp(float64(float32(2*i) * step)))
	}
	row := func(w []float32, p int) []float32 {
		v := make([]float32, d)
		fillPositions(v, p, w)
		return v
	}
	for _, c := range []struct {
		last int
		want float64
	}{{128, 7.6e-6}, {375, 3e-5}, {3750, 2.4e-4}, {5000, 4.9e-4}, {45_001, 3.7e-3}} {
		worst := 0.0
		for p := max(0, c.last-100); p < c.last; p++ {
			worst = max(worst, distance(row(w, p), row(nemo, p)))
		}
		if worst < 0.5*c.want || worst > 1.1*c.want {
			t.Errorf("offsets to %d: the two formulas differ by %.2g, should be about %.2g", c.last, worst, c.want)
		}
	}
	zero, past, future := row(w, 0), row(w, 7), row(w, -7)
	for i := 0; i < d; i += 2 {
		if zero[i] != 0 || zero[i+1] != 1 {
			t.Fatalf("offset 0 has %v, %v at %d", zero[i], zero[i+1], i)
		}
		if past[i] != -future[i] || past[i+1] != future[i+1] {
			t.Fatalf("offsets 7 and -7 are no mirror images at %d", i)
		}
	}
	if past[0] != float32(math.Sin(7)) || past[1] != float32(math.Cos(7)) {
		t.Errorf("offset 7 starts with %v, %v: sine first, then cosine, of 7", past[0], past[1])
	}
}

// TestSwitchRebuildsNothing: attention belongs to a pass. After any number of switches every weight is the one that was loaded, in the format it was
// loaded in, no memory has been added, and a pass gives the same bits as before.
func TestSwitchRebuildsNothing(t *testing.T) {
	for _, dtype := range []ml.DType{ml.Float32, ml.BFloat16} {
		c := tinyConfig(true, false)
		m := open(t, c, tinyTensors(t, c), dtype)
		before := slices.Clone(m.Weights())
		matrices := 0
		for _, w := range before {
			if len(w.Shape()) == 2 && w.DType() == dtype {
				matrices++
			}
			if want := wantDType(w, dtype); w.DType() != want {
				t.Errorf("%s %v is %v, want %v", w.Name, w.Shape(), w.DType(), want)
			}
		}
		if matrices < 20 {
			t.Errorf("only %d matrices in %v", matrices, dtype)
		}
		s := m.NewSession()
		in := noise(640, c.Mels, 8)
		full, local := encode(t, s, in, Full), encode(t, s, in, Attention{5, 3})
		held := m.backend.Memory()
		for range 3 {
			if got := encode(t, s, in, Full); !slices.Equal(got, full) {
				t.Errorf("%v: full attention gives other bits after a switch", dtype)
			}
			if got := encode(t, s, in, Attention{5, 3}); !slices.Equal(got, local) {
				t.Errorf("%v: local attention gives other bits after a switch", dtype)
			}
		}
		if now := m.backend.Memory(); now != held {
			t.Errorf("%v: %+v after the switches, %+v before", dtype, now, held)
		}
		if !slices.Equal(m.Weights(), before) {
			t.Errorf("%v: the weights were replaced", dtype)
		}
		for _, w := range m.Weights() {
			if want := wantDType(w, dtype); w.DType() != want {
				t.Errorf("%s is %v after the switches, want %v", w.Name, w.DType(), want)
			}
		}
	}
}

// wantDType: what is multiplied with whole activations is in the model's format, everything small in float32.
func wantDType(w NamedWeight, d ml.DType) ml.DType {
	shape := w.Shape()
	small := len(shape) < 2 || shape[0] == 9 // biases, norms, filters by taps
	for _, suffix := range []string{"bias_u", "bias_v"} {
		small = small || w.Name[max(0, len(w.Name)-len(suffix)):] == suffix
	}
	if small {
		return ml.Float32
	}
	return d
}

// TestFootprint: the prediction, made without a backend, is what the backend then holds.
func TestFootprint(t *testing.T) {
	for _, dtype := range []ml.DType{ml.Float32, ml.BFloat16} {
		for _, biases := range []bool{false, true} {
			for _, a := range []Attention{Full, {8, 3}} {
				for _, frames := range []Frames{1, 150, 5000} {
					c := tinyConfig(biases, false)
					m := open(t, c, tinyTensors(t, c), dtype)
					want := Footprint(Config{c}, m.backend.Info(), dtype, frames, a, Full)
					s := m.NewSession()
					encode(t, s, noise(frames, c.Mels, 1), a)
					got := m.backend.Memory()
					if got.WeightBytes != want.WeightBytes || got.BufferBytes != want.BufferBytes {
						t.Errorf("%v %v, %d frames, window %v: holds %+v, predicted %+v", dtype, biases, frames, a, got, want)
					}
					s.Close()
					m.Close()
					if left := m.backend.Memory(); left.WeightBytes != 0 || left.BufferBytes != 0 {
						t.Errorf("after Close %+v is held", left)
					}
				}
			}
		}
	}
}

// TestOutOfMemory: a pass that does not fit is an error, and the session lives on.
func TestOutOfMemory(t *testing.T) {
	c := tinyConfig(false, false)
	b := cpu.New(cpu.Options{Threads: 1, MaxBytes: 2 << 20})
	defer b.Close()
	m, err := Load(c, tinyTensors(t, c), b, ml.Float32)
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSession()
	encode(t, s, noise(100, c.Mels, 1), Full)
	if _, err := s.Encode(t.Context(), noise(200_000, c.Mels, 1), Full); !errors.Is(err, ml.ErrOutOfMemory) {
		t.Errorf("200,000 frames in 2 MiB: %v", err)
	}
	if _, err := s.DecodeCTC(t.Context()); err == nil {
		t.Error("decoded a pass that failed")
	}
	encode(t, s, noise(100, c.Mels, 1), Full)
}

func TestEncodeErrors(t *testing.T) {
	m := tiny(t, false, false)
	s := m.NewSession()
	for _, in := range []LogMel{{}, {Frames: 2, Values: make([]float32, 16)}, {Frames: -1}} {
		if _, err := s.Encode(t.Context(), in, Full); err == nil {
			t.Errorf("%d values for %d frames: no error", len(in.Values), in.Frames)
		}
	}
	for _, a := range []Attention{{-1, 3}, {3, -1}, {-2, -2}} {
		if _, err := s.Encode(t.Context(), noise(8, 16, 1), a); err == nil {
			t.Errorf("window %v: no error", a)
		}
	}
}

// TestCancelStopsWithin250ms ends the context at many moments of a pass over an hour with full attention, from the subsampling and the position
// table to the middle of an attention, and holds the time until Encode returns. The machine may be busy: of three tries the best counts.
func TestCancelStopsWithin250ms(t *testing.T) {
	if testing.Short() {
		t.Skip("an hour of features")
	}
	m := tiny(t, false, false)
	s := m.NewSession()
	defer s.Close()
	in := noise(360_000, 16, 9)
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond} {
		best := time.Hour
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			var asked time.Time
			timer := time.AfterFunc(after, func() {
				asked = time.Now()
				cancel()
			})
			_, err := s.Encode(ctx, in, Full)
			took := time.Since(asked)
			timer.Stop()
			cancel()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("canceled after %v ms: %v", int(after), err)
			}
			if best = min(best, took); best < 250*time.Millisecond {
				break
			}
		}
		if best > 250*time.Millisecond {
			t.Errorf("canceled after %d ms: stopped %v later", int(after), best)
		}
		if _, err := s.DecodeTransducer(t.Context()); !errors.Is(err, errNothingEncoded) {
			t.Errorf("decoding after a canceled pass: %v", err)
		}
	}
}

// TestProgress rises to 1.
func TestProgress(t *testing.T) {
	s := tiny(t, false, false).NewSession()
	var got []float64
	s.Hooks.Progress = func(done float64) { got = append(got, done) }
	if _, err := s.Encode(t.Context(), noise(100, 16, 1), Full); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []float64{0.5, 1}) {
		t.Errorf("progress %v", got)
	}
}
