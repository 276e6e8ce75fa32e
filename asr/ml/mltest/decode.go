package mltest

import (
	"errors"
	"math"
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
)

func testEmbed(t *testing.T, s *suite) {
	const rows, width = 13, 7
	for _, d := range s.dtypes() {
		w, stored := s.matrix(t, ml.MatrixSpec{Rows: rows, Cols: width, DType: d, Use: ml.UseRows}, s.values(rows*width, 1))
		ids := []int{12, 0, 5, 5}
		dst := s.empty(t, len(ids), width)
		must(t, s.Embed(t.Context(), dst, w, ids))
		var want []float64
		for _, id := range ids {
			want = append(want, wide(stored[id*width:(id+1)*width])...)
		}
		s.compare(t, d.String(), d, s.read(t, dst), want)
	}
}

// testLSTM takes several steps: the state is carried, in place.
func testLSTM(t *testing.T, s *suite) {
	for _, d := range s.dtypes() {
		for _, sh := range []struct{ rows, in, hidden int }{{1, 16, 16}, {1, 9, 5}, {3, 7, 10}, {1, 160, 160}} {
			gates := 4 * sh.hidden
			wx, storedX := s.matrix(t, ml.MatrixSpec{Rows: gates, Cols: sh.in, DType: d, Use: ml.UseLinear}, s.values(gates*sh.in, 0.5))
			wh, storedH := s.matrix(t, ml.MatrixSpec{Rows: gates, Cols: sh.hidden, DType: d, Use: ml.UseLinear}, s.values(gates*sh.hidden, 0.5))
			b := s.values(gates, 1)
			l := ml.LSTM{WX: wx, WH: wh, B: s.param(t, b, gates)}
			h, c := make([]float32, sh.rows*sh.hidden), make([]float32, sh.rows*sh.hidden)
			ht, ct := s.tensor(t, sh.rows, sh.hidden, h), s.tensor(t, sh.rows, sh.hidden, c)
			for step := range 3 {
				x := s.values(sh.rows*sh.in, 1)
				wh, wc := refLSTM(x, h, c, storedX, storedH, b, sh.rows, sh.in, sh.hidden)
				must(t, s.LSTM(t.Context(), ht, ct, s.tensor(t, sh.rows, sh.in, x), l))
				h, c = s.read(t, ht), s.read(t, ct)
				s.compare(t, label("%v %+v step %d h", d, sh, step), d, h, wh)
				s.compare(t, label("%v %+v step %d c", d, sh, step), d, c, wc)
			}
		}
	}
}

func testJoint(t *testing.T, s *suite) {
	for _, d := range s.dtypes() {
		for _, sh := range []struct{ rows, in, tokens, durations int }{{1, 16, 13, 5}, {4, 21, 30, 5}, {1, 64, 1025, 5}, {2, 8, 9, 0}} {
			out := sh.tokens + sh.durations
			w, stored := s.matrix(t, ml.MatrixSpec{Rows: out, Cols: sh.in, DType: d, Use: ml.UseLinear}, s.values(out*sh.in, 0.5))
			b := s.values(out, 0.5)
			f, p := s.values(sh.rows*sh.in, 1), s.values(sh.rows*sh.in, 1)
			hidden := make([]float32, len(f))
			for i := range hidden {
				hidden[i] = max(f[i]+p[i], 0)
			}
			want := refLinear(hidden, stored, b, sh.rows, sh.in, out, ml.None)
			logits := s.empty(t, sh.rows, out)
			choice := make([]ml.Choice, sh.rows)
			must(t, s.Joint(t.Context(), logits, s.tensor(t, sh.rows, sh.in, f), s.tensor(t, sh.rows, sh.in, p),
				ml.Linear{W: w, B: s.param(t, b, out)}, sh.tokens, choice))
			got := s.read(t, logits)
			s.compare(t, label("%v %+v", d, sh), d, got, want)
			for r := range choice {
				row := got[r*out : (r+1)*out]
				exp := ml.Choice{Token: first(row[:sh.tokens])}
				if sh.durations > 0 {
					exp.Duration = first(row[sh.tokens:])
				}
				if choice[r] != exp {
					t.Errorf("%v %+v row %d: chose %+v, want %+v", d, sh, r, choice[r], exp)
				}
			}
		}
	}
}

// first is the index of the first maximum.
func first(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// fixedJoint makes a joint network whose logits are its biases.
func (s *suite) fixedJoint(t *testing.T, bias []float32, tokens int) (ml.Choice, error) {
	t.Helper()
	const in = 4
	w, _ := s.matrix(t, ml.MatrixSpec{Rows: len(bias), Cols: in, DType: ml.Float32, Use: ml.UseLinear}, make([]float32, len(bias)*in))
	zero := s.tensor(t, 1, in, make([]float32, in))
	out := make([]ml.Choice, 1)
	err := s.Joint(t.Context(), s.empty(t, 1, len(bias)), zero, s.tensor(t, 1, in, make([]float32, in)),
		ml.Linear{W: w, B: s.param(t, bias, len(bias))}, tokens, out)
	return out[0], err
}

// testJointTies: the first maximum wins in both groups, and neither group's logits sway the other's choice, however large.
func testJointTies(t *testing.T, s *suite) {
	for _, c := range []struct {
		bias []float32
		want ml.Choice
	}{
		{[]float32{1, 3, 3, 0, 2, 2, 1}, ml.Choice{Token: 1, Duration: 0}},
		{[]float32{0, 0, 0, 0, -1, 0, 0}, ml.Choice{Token: 0, Duration: 1}},
		{[]float32{-5, -4, -4, -6, 1, 2, 2}, ml.Choice{Token: 1, Duration: 1}},
		{[]float32{200, 3, 3, 0, 1, 2, 1.5}, ml.Choice{Token: 0, Duration: 1}},
		{[]float32{1, 3, 2, 0, 900, 901, 899}, ml.Choice{Token: 1, Duration: 1}},
	} {
		got, err := s.fixedJoint(t, c.bias, 4)
		must(t, err)
		if got != c.want {
			t.Errorf("%v: chose %+v, want %+v", c.bias, got, c.want)
		}
	}
}

func testArgmax(t *testing.T, s *suite) {
	x := []float32{
		0, 1, 2, 3, 2,
		-5, -2, -2, -7, -9,
		4, 4, 4, 4, 4,
		float32(math.Inf(-1)), -1e30, float32(math.Inf(-1)), -2e30, -1e30,
	}
	out := make([]int, 4)
	must(t, s.Argmax(t.Context(), out, s.tensor(t, 4, 5, x)))
	for i, want := range []int{3, 1, 0, 1} {
		if out[i] != want {
			t.Errorf("row %d: %d, want %d", i, out[i], want)
		}
	}
}

// testNotFinite: a row of NaN has no maximum, and says so instead of giving the first token for ever.
func testNotFinite(t *testing.T, s *suite) {
	nan := float32(math.NaN())
	if err := s.Argmax(t.Context(), make([]int, 2), s.tensor(t, 2, 2, []float32{1, 2, nan, nan})); !errors.Is(err, ml.ErrNotFinite) {
		t.Errorf("argmax: %v, want ErrNotFinite", err)
	}
	if _, err := s.fixedJoint(t, []float32{nan, nan, nan, 1, 2}, 3); !errors.Is(err, ml.ErrNotFinite) {
		t.Errorf("joint tokens: %v, want ErrNotFinite", err)
	}
	if _, err := s.fixedJoint(t, []float32{1, 2, 3, nan, nan}, 3); !errors.Is(err, ml.ErrNotFinite) {
		t.Errorf("joint durations: %v, want ErrNotFinite", err)
	}
}
