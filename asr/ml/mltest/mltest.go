// Package mltest is the conformance suite of ml.Backend: every operation of a backend against the definition in ml, computed the
// plainest way in float64, over weight formats, shapes, odd tails and views, and the rules that all operations share (cancellation,
// memory, shape mistakes). A new backend, or a faster kernel of an old one, is done when Run passes.
//
// Inputs come from seeded generators: a failure repeats.
package mltest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
)

// Config says what to test and how closely.
type Config struct {
	// Open makes a backend; the suite closes it.
	Open func(tb testing.TB) ml.Backend
	// Tolerance bounds |got-want| / (1+|want|) for an operation on weights of a format. Inputs are of order one. The suite rounds the
	// weights to the format before it computes the reference, so the bound is about arithmetic alone. nil is 1e-5 for all.
	Tolerance func(ml.DType) float64
	// Long is the number of positions of the cancellation test on attention; 0 is 45,000, an hour of audio.
	Long int
}

// Run holds a backend against the definitions.
func Run(t *testing.T, c Config) {
	if c.Tolerance == nil {
		c.Tolerance = func(ml.DType) float64 { return 1e-5 }
	}
	if c.Long == 0 {
		c.Long = 45_000
	}
	for _, s := range []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"Info", testInfo},
		{"Copy", testCopy},
		{"Linear", testLinear},
		{"LinearViews", testLinearViews},
		{"LinearLarge", testLinearLarge},
		{"LayerNorm", testLayerNorm},
		{"Attention", testAttention},
		{"AttentionViews", testAttentionViews},
		{"AttentionPeaks", testAttentionPeaks},
		{"DepthwiseConv", testDepthwiseConv},
		{"ConvStem", testConvStem},
		{"ConvDepthwise2D", testConvDepthwise2D},
		{"ConvSlices", testConvSlices},
		{"Embed", testEmbed},
		{"LSTM", testLSTM},
		{"Joint", testJoint},
		{"JointTies", testJointTies},
		{"Argmax", testArgmax},
		{"NotFinite", testNotFinite},
		{"Memory", testMemory},
		{"Canceled", testCanceled},
		{"CancelLong", testCancelLong},
		{"Shapes", testShapes},
	} {
		t.Run(s.name, func(t *testing.T) {
			b := c.Open(t)
			defer func() {
				if err := b.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			s.run(t, &suite{Backend: b, config: c, seed: 1})
		})
	}
}

// suite is a backend under test with a source of numbers.
type suite struct {
	ml.Backend
	config Config
	seed   uint32
}

// uniform draws a number in [-1, 1).
func (s *suite) uniform() float32 {
	s.seed = s.seed*1664525 + 1013904223
	return float32(s.seed>>8)/(1<<23) - 1
}

// values draws n numbers within ±scale.
func (s *suite) values(n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = s.uniform() * float32(scale)
	}
	return v
}

// tensor reserves a tensor that holds v.
func (s *suite) tensor(t *testing.T, rows, cols int, v []float32) ml.Tensor {
	t.Helper()
	x := s.empty(t, rows, cols)
	if err := s.Write(t.Context(), x, v); err != nil {
		t.Fatalf("write: %v", err)
	}
	return x
}

// empty reserves a tensor that holds NaN, so that what an operation leaves out, or reads before it is there, shows.
func (s *suite) empty(t *testing.T, rows, cols int) ml.Tensor {
	t.Helper()
	buf, err := s.Reserve(rows * cols)
	if err != nil {
		t.Fatalf("reserve: %v", err)
	}
	x := ml.NewTensor(buf, 0, rows, cols)
	nan := make([]float32, rows*cols)
	for i := range nan {
		nan[i] = float32(math.NaN())
	}
	if err := s.Write(t.Context(), x, nan); err != nil {
		t.Fatalf("write: %v", err)
	}
	return x
}

// read copies a tensor to the host.
func (s *suite) read(t *testing.T, x ml.Tensor) []float32 {
	t.Helper()
	v := make([]float32, x.Rows*x.Cols)
	if err := s.Read(t.Context(), v, x); err != nil {
		t.Fatalf("read: %v", err)
	}
	return v
}

// matrix uploads a matrix, and returns its values as the device has them.
func (s *suite) matrix(t *testing.T, spec ml.MatrixSpec, v []float32) (ml.Weight, []float32) {
	t.Helper()
	w, err := s.Matrix(spec, v)
	if err != nil {
		t.Fatalf("upload: %v", err)
	}
	if w.DType() != spec.DType {
		t.Errorf("the matrix is %v and should be %v", w.DType(), spec.DType)
	}
	stored := append([]float32(nil), v...)
	if spec.DType == ml.BFloat16 {
		for i, x := range stored {
			stored[i] = ml.WidenBFloat16(ml.RoundBFloat16(x))
		}
	}
	return w, stored
}

// param uploads a parameter.
func (s *suite) param(t *testing.T, v []float32, shape ...int) ml.Weight {
	t.Helper()
	w, err := s.Param(shape, v)
	if err != nil {
		t.Fatalf("upload: %v", err)
	}
	return w
}

// compare holds got against want.
func (s *suite) compare(t *testing.T, what string, d ml.DType, got []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	worst, at := 0.0, 0
	for i, w := range want {
		e := math.Abs(float64(got[i])-w) / (1 + math.Abs(w))
		if !(e <= worst) { // NaN is the worst
			worst, at = e, i
			if math.IsNaN(e) {
				break
			}
		}
	}
	if limit := s.config.Tolerance(d); !(worst <= limit) {
		t.Errorf("%s: value %d is %v, want %v: error %.3g, limit %.3g", what, at, got[at], want[at], worst, limit)
	}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

// testInfo: a backend says what it is, accepts float32 at least, and has sizes to plan with.
func testInfo(t *testing.T, s *suite) {
	i := s.Info()
	if i.Name == "" || !slices.Contains(i.DTypes, ml.Float32) || i.RowBlock < 1 || i.PadRows < 1 {
		t.Errorf("%+v", i)
	}
}

// testCopy writes and reads through views.
func testCopy(t *testing.T, s *suite) {
	const rows, cols = 7, 11
	v := s.values(rows*cols, 1)
	x := s.tensor(t, rows, cols, v)
	s.compare(t, "whole", ml.Float32, s.read(t, x), wide(v))

	part := x.RowRange(2, 6).ColRange(3, 8)
	var want []float64
	for r := 2; r < 6; r++ {
		want = append(want, wide(v[r*cols+3:r*cols+8])...)
	}
	s.compare(t, "view", ml.Float32, s.read(t, part), want)

	fresh := s.values(part.Rows*part.Cols, 1)
	must(t, s.Write(t.Context(), part, fresh))
	for r := range part.Rows {
		copy(v[(r+2)*cols+3:], fresh[r*part.Cols:(r+1)*part.Cols])
	}
	s.compare(t, "around the view", ml.Float32, s.read(t, x), wide(v))
	s.compare(t, "reshaped", ml.Float32, s.read(t, x.Reshape(cols, rows)), wide(v))
	if got := s.read(t, x.RowRange(3, 3)); len(got) != 0 {
		t.Errorf("no rows gave %v", got)
	}
}

func label(format string, args ...any) string { return fmt.Sprintf(format, args...) }
