package checkpoint

import (
	"math"
	"testing"
)

// TestHalfToFloat32 rebuilds each of the 65,536 halves from its definition.
func TestHalfToFloat32(t *testing.T) {
	t.Parallel()
	for h := range 1 << 16 {
		exp, frac := h>>10&0x1f, float64(h&0x3ff)
		var want float64
		switch {
		case exp == 0x1f && frac == 0:
			want = math.Inf(1)
		case exp == 0x1f:
			want = math.NaN()
		case exp == 0:
			want = frac * 0x1p-24
		default:
			want = (1 + frac/1024) * math.Pow(2, float64(exp-15))
		}
		if h>>15 == 1 {
			want = -want
		}
		got := float64(halfToFloat32(uint16(h)))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != (h>>15 == 1) {
			t.Fatalf("%#04x = %v, want %v", h, got, want)
		}
	}
}

func TestRoundBFloat16(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		bits uint32
		want uint16
	}{
		{0x3f800000, 0x3f80}, // 1
		{0x3f807fff, 0x3f80}, // just below the middle
		{0x3f808000, 0x3f80}, // the middle, down to even
		{0x3f808001, 0x3f81}, // just above
		{0x3f818000, 0x3f82}, // the middle, up to even
		{0xbf818000, 0xbf82}, // and below zero
		{0x00000000, 0x0000},
		{0x80000000, 0x8000}, // -0
		{0x00008001, 0x0001}, // subnormal
		{0x7f7fffff, 0x7f80}, // the largest float32 rounds to infinity
		{0x7f7f7fff, 0x7f7f}, // the largest that does not
		{0x7f800000, 0x7f80}, // infinity
		{0xff800000, 0xff80},
		{0x7f800001, 0x7fc0}, // a NaN whose payload is all in the low half
		{0x7fffffff, 0x7fff}, // would overflow into the sign
		{0xffffffff, 0xffff},
	} {
		if got := RoundBFloat16(math.Float32frombits(tt.bits)); got != tt.want {
			t.Errorf("%#08x: %#04x, want %#04x", tt.bits, got, tt.want)
		}
	}
}
