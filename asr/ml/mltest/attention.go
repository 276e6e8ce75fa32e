package mltest

import (
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
)

// window is a pair of bounds; -1 is none.
type window struct{ left, right int }

var attentionShapes = []struct {
	n, heads, d int
	windows     []window
}{
	{1, 1, 1, []window{{-1, -1}, {0, 0}, {4, 4}}},
	{2, 2, 3, []window{{-1, -1}, {1, 0}, {0, 1}}},
	{19, 4, 8, []window{{-1, -1}, {4, 4}, {3, 7}, {7, 3}, {0, 2}, {18, 18}, {100, 200}, {5, -1}, {-1, 5}}},
	{33, 1, 5, []window{{-1, -1}, {1, 1}, {32, 0}}},
	{64, 2, 16, []window{{-1, -1}, {8, 8}}},
	{131, 2, 12, []window{{-1, -1}, {16, 16}, {2, 40}, {70, 9}, {64, 64}, {127, 1}}},
	{200, 1, 7, []window{{-1, -1}, {10, 11}}},
	{70, 1, 150, []window{{-1, -1}, {20, 3}}}, // wider heads than usual
	{0, 2, 4, []window{{-1, -1}}},
}

// attention makes a random case. R has `extra` offsets more than occur, on both sides.
func (s *suite) attentionCase(n, heads, d int, w window, extra int) attentionCase {
	width := heads * d
	a := attentionCase{n: n, heads: heads, d: d, left: w.left, right: w.right}
	lo, hi := ml.RelAttention{Left: w.left, Right: w.right}.Offsets(n)
	a.min = lo - extra
	rows := max(hi-lo+1, 0) + 2*extra
	a.q, a.k, a.v = s.values(n*width, 2), s.values(n*width, 2), s.values(n*width, 1)
	a.r = s.values(rows*width, 2)
	a.u, a.vb = s.values(width, 0.5), s.values(width, 0.5)
	return a
}

// args uploads a case.
func (s *suite) args(t *testing.T, a attentionCase) ml.RelAttention {
	t.Helper()
	width := a.heads * a.d
	return ml.RelAttention{
		Q: s.tensor(t, a.n, width, a.q), K: s.tensor(t, a.n, width, a.k), V: s.tensor(t, a.n, width, a.v),
		R: s.tensor(t, len(a.r)/width, width, a.r), MinOffset: a.min,
		U: s.param(t, a.u, a.heads, a.d), V0: s.param(t, a.vb, a.heads, a.d),
		Heads: a.heads, Left: a.left, Right: a.right,
	}
}

func testAttention(t *testing.T, s *suite) {
	for _, sh := range attentionShapes {
		for i, w := range sh.windows {
			a := s.attentionCase(sh.n, sh.heads, sh.d, w, i%3)
			want := refAttention(a)
			args := s.args(t, a)
			dst := s.empty(t, a.n, a.heads*a.d)
			must(t, s.Attention(t.Context(), dst, args))
			what := label("n %d heads %d width %d window %v", sh.n, sh.heads, sh.d, w)
			s.compare(t, what, ml.Float32, s.read(t, dst), want)
			must(t, s.Attention(t.Context(), args.Q, args))
			s.compare(t, what+" over Q", ml.Float32, s.read(t, args.Q), want)
		}
	}
}

// testAttentionViews has queries, keys and values side by side in one tensor, and writes over the queries.
func testAttentionViews(t *testing.T, s *suite) {
	const n, heads, d, width = 77, 2, 6, 12
	for _, w := range []window{{-1, -1}, {9, 4}} {
		a := s.attentionCase(n, heads, d, w, 0)
		args := s.args(t, a)
		all := s.empty(t, n, 3*width)
		for i, v := range [][]float32{a.q, a.k, a.v} {
			must(t, s.Write(t.Context(), all.ColRange(i*width, (i+1)*width), v))
		}
		args.Q, args.K, args.V = all.ColRange(0, width), all.ColRange(width, 2*width), all.ColRange(2*width, 3*width)
		must(t, s.Attention(t.Context(), args.Q, args))
		s.compare(t, label("window %v", w), ml.Float32, s.read(t, args.Q), refAttention(a))
		s.compare(t, "keys afterwards", ml.Float32, s.read(t, args.K), wide(a.k))
		s.compare(t, "values afterwards", ml.Float32, s.read(t, args.V), wide(a.v))
	}
}

// testAttentionPeaks has scores of hundreds, rising from tile to tile: exponentials overflow unless the running maximum is taken out,
// and what was summed before a new maximum must vanish without a NaN.
func testAttentionPeaks(t *testing.T, s *suite) {
	const n, heads, d = 150, 1, 4
	for _, slope := range []float32{4, -4} {
		a := s.attentionCase(n, heads, d, window{-1, -1}, 0)
		for i := range n {
			for c := range d {
				a.q[i*d+c] = 1
				a.k[i*d+c] = slope * float32(i)
			}
		}
		args := s.args(t, a)
		dst := s.empty(t, n, d)
		must(t, s.Attention(t.Context(), dst, args))
		s.compare(t, label("slope %v", slope), ml.Float32, s.read(t, dst), refAttention(a))
	}
}
