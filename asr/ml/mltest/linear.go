package mltest

import (
	"math"
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
)

// dtypes are the formats that the backend under test accepts.
func (s *suite) dtypes() []ml.DType { return s.Info().DTypes }

// shapes of a linear layer: single rows (the decoder), odd tails on every side, more inputs than a cache block.
var linearShapes = []struct{ rows, in, out int }{
	{1, 1, 1}, {1, 640, 37}, {2, 3, 5}, {3, 16, 18}, {5, 7, 4}, {7, 33, 65}, {64, 32, 64}, {65, 31, 63}, {66, 129, 130}, {3, 1025, 9},
	{2, 2500, 6}, {129, 24, 3}, {0, 8, 8},
}

func testLinear(t *testing.T, s *suite) {
	for _, d := range s.dtypes() {
		for _, sh := range linearShapes {
			for _, a := range []ml.Activation{ml.None, ml.ReLU, ml.SiLU, ml.GLU} {
				s.linear(t, d, sh.rows, sh.in, sh.out, a, true, 1, 0)
			}
			s.linear(t, d, sh.rows, sh.in, sh.out, ml.None, false, 0.5, 1)
			s.linear(t, d, sh.rows, sh.in, sh.out, ml.SiLU, true, 0, 1)
			s.linear(t, d, sh.rows, sh.in, sh.out, ml.GLU, false, 2, 2)
			s.linear(t, d, sh.rows, sh.in, sh.out, ml.ReLU, false, 5.656854, 0)
		}
	}
}

// testLinearLarge has enough work for every thread.
func testLinearLarge(t *testing.T, s *suite) {
	for _, d := range s.dtypes() {
		s.linear(t, d, 200, 257, 131, ml.SiLU, true, 1, 1)
		s.linear(t, d, 131, 300, 100, ml.GLU, true, 1, 0)
	}
}

// linear tests one combination. residual: 0 none, 1 another tensor, 2 the output itself. A GLU has 2*out rows of weights.
func (s *suite) linear(t *testing.T, d ml.DType, rows, in, out int, a ml.Activation, bias bool, scale float32, residual int) {
	t.Helper()
	spec := ml.MatrixSpec{Rows: out, Cols: in, DType: d, Use: ml.UseLinear}
	if a == ml.GLU {
		spec.Rows, spec.Use = 2*out, ml.UseGated
	}
	w, stored := s.matrix(t, spec, s.values(spec.Rows*in, 1/math.Sqrt(float64(in))))
	x := s.values(rows*in, 1)
	l := ml.Linear{W: w}
	var b []float32
	if bias {
		b = s.values(spec.Rows, 0.5)
		l.B = s.param(t, b, spec.Rows)
	}
	want := refLinear(x, stored, b, rows, in, spec.Rows, a)
	e := ml.Epilogue{Act: a, Scale: scale}
	factor := float64(scale)
	if scale == 0 {
		factor = 1
	}
	dst := s.empty(t, rows, out)
	res := make([]float32, rows*out)
	if residual > 0 {
		res = s.values(rows*out, 3)
		e.Residual = dst
		if residual == 1 {
			e.Residual = s.tensor(t, rows, out, res)
		} else {
			must(t, s.Write(t.Context(), dst, res))
		}
	}
	for i := range want {
		want[i] = float64(res[i]) + factor*want[i]
	}
	must(t, s.Linear(t.Context(), dst, s.tensor(t, rows, in, x), l, e))
	what := label("%v %dx%dx%d activation %d bias %v scale %v residual %d", d, rows, in, out, a, bias, scale, residual)
	s.compare(t, what, d, s.read(t, dst), want)
	w.Release()
}

// testLinearViews reads and writes column ranges of wider tensors and leaves their neighbors alone.
func testLinearViews(t *testing.T, s *suite) {
	const rows, in, out, margin = 67, 20, 12, 5
	for _, d := range s.dtypes() {
		w, stored := s.matrix(t, ml.MatrixSpec{Rows: out, Cols: in, DType: d, Use: ml.UseLinear}, s.values(out*in, 0.2))
		around := s.values(rows*(in+2*margin), 1)
		x := make([]float32, 0, rows*in)
		for r := range rows {
			at := r*(in+2*margin) + margin
			x = append(x, around[at:at+in]...)
		}
		src := s.tensor(t, rows, in+2*margin, around).ColRange(margin, margin+in)
		host := s.values(rows*(out+2*margin), 1)
		whole := s.tensor(t, rows, out+2*margin, host)
		dst := whole.ColRange(margin, margin+out)
		must(t, s.Linear(t.Context(), dst, src, ml.Linear{W: w}, ml.Epilogue{Residual: dst, Scale: 0.5}))
		want := wide(host)
		y := refLinear(x, stored, nil, rows, in, out, ml.None)
		for r := range rows {
			for c := range out {
				want[r*(out+2*margin)+margin+c] += 0.5 * y[r*out+c]
			}
		}
		s.compare(t, label("%v views", d), d, s.read(t, whole), want)
	}
}

func testLayerNorm(t *testing.T, s *suite) {
	for _, sh := range []struct{ rows, cols int }{{1, 1}, {1, 7}, {17, 32}, {33, 144}, {3, 1024}, {0, 4}} {
		x := s.values(sh.rows*sh.cols, 2)
		for i := range x {
			x[i] += 100 // far from zero: a one-pass variance in float32 fails here
		}
		w, b := s.values(sh.cols, 1), s.values(sh.cols, 1)
		n := ml.Norm{W: s.param(t, w, sh.cols), B: s.param(t, b, sh.cols), Eps: 1e-5}
		want := refLayerNorm(x, w, b, sh.rows, sh.cols, n.Eps)
		src := s.tensor(t, sh.rows, sh.cols, x)
		dst := s.empty(t, sh.rows, sh.cols)
		must(t, s.LayerNorm(t.Context(), dst, src, n))
		what := label("%dx%d", sh.rows, sh.cols)
		s.compare(t, what, ml.Float32, s.read(t, dst), want)
		must(t, s.LayerNorm(t.Context(), src, src, n))
		s.compare(t, what+" in place", ml.Float32, s.read(t, src), want)
	}
}
