package ml

import (
	"math"
	"testing"
)

// TestRoundBFloat16 holds the rounding against the definition: no neighbor is nearer, and of two equally near the even one is taken.
func TestRoundBFloat16(t *testing.T) {
	check := func(f float32) {
		t.Helper()
		got := RoundBFloat16(f)
		e := math.Abs(float64(WidenBFloat16(got)) - float64(f))
		for _, other := range []uint16{got - 1, got + 1} {
			o := math.Abs(float64(WidenBFloat16(other)) - float64(f))
			if o < e || o == e && got&1 == 1 {
				t.Errorf("%v (%#x) rounds to %#x, but %#x is nearer or even", f, math.Float32bits(f), got, other)
			}
		}
	}
	seed := uint32(3)
	for range 100_000 {
		seed = seed*1664525 + 1013904223
		f := math.Float32frombits(seed)
		if m := math.Abs(float64(f)); m > 1e-37 && m < 1e37 {
			check(f)
		}
	}
	for bits := uint32(0x3f800000); bits < 0x3f840000; bits += 0x4000 { // exact ties and their neighbors
		check(math.Float32frombits(bits))
		check(math.Float32frombits(bits + 1))
		check(math.Float32frombits(bits - 1))
	}
	inf := float32(math.Inf(1))
	for _, f := range []float32{0, 1, -2, inf, -inf} {
		if got := WidenBFloat16(RoundBFloat16(f)); got != f {
			t.Errorf("%v becomes %v", f, got)
		}
	}
	for _, bits := range []uint32{0x7f800001, 0x7fc00000, 0xffffffff, 0xff800001} {
		if got := WidenBFloat16(RoundBFloat16(math.Float32frombits(bits))); got == got {
			t.Errorf("the NaN %#x becomes %v", bits, got)
		}
	}
}

type fakeBuffer int

func (b fakeBuffer) Floats() int { return int(b) }
func (fakeBuffer) Release()      {}

func TestOverlaps(t *testing.T) {
	whole := NewTensor(fakeBuffer(100), 10, 8, 10)
	for _, c := range []struct {
		name string
		a, b Tensor
		want bool
	}{
		{"itself", whole, whole, true},
		{"next rows", whole.RowRange(0, 3), whole.RowRange(3, 6), false},
		{"shared row", whole.RowRange(0, 4), whole.RowRange(3, 6), true},
		{"next columns", whole.ColRange(0, 4), whole.ColRange(4, 10), false},
		{"next columns, swapped", whole.ColRange(4, 10), whole.ColRange(0, 4), false},
		{"shared column", whole.ColRange(0, 5), whole.ColRange(4, 10), true},
		{"columns of other rows", whole.ColRange(0, 4).RowRange(0, 4), whole.ColRange(6, 10).RowRange(2, 6), false},
		{"columns that run into the next row", whole.ColRange(6, 10).RowRange(2, 6), whole.ColRange(5, 7).RowRange(0, 4), true},
		{"nothing", whole.RowRange(2, 2), whole, false},
		{"another buffer", whole, NewTensor(fakeBuffer(200), 10, 8, 10), false},
		{"other strides", whole, NewTensor(fakeBuffer(100), 0, 5, 5), true},
	} {
		if got := c.a.Overlaps(c.b); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestOffsets(t *testing.T) {
	for _, c := range []struct{ n, left, right, lo, hi int }{
		{5, -1, -1, -4, 4}, {5, 2, 3, -3, 2}, {5, 9, 9, -4, 4}, {1, 128, 128, 0, 0}, {5, 0, -1, -4, 0},
	} {
		lo, hi := RelAttention{Left: c.left, Right: c.right}.Offsets(c.n)
		if lo != c.lo || hi != c.hi {
			t.Errorf("%+v: %d to %d", c, lo, hi)
		}
	}
}
