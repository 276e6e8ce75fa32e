package probe

import (
	"math"
	"slices"
	"testing"
)

// The tables of ITU-T G.711: where each segment starts, and its step.
func TestCompandedSamples(t *testing.T) {
	t.Parallel()
	aStart, aStep := []int{1, 33, 66, 132, 264, 528, 1056, 2112}, []int{2, 2, 4, 8, 16, 32, 64, 128}
	muStart, muStep := []int{0, 33, 99, 231, 495, 1023, 2079, 4191}, []int{2, 4, 8, 16, 32, 64, 128, 256}
	for i := range 256 {
		a, mu := uint8(i)^0x55, ^uint8(i)
		wantA := float32(aStart[a>>4&7]+int(a&15)*aStep[a>>4&7]) / 4096
		if a < 128 {
			wantA = -wantA
		}
		wantMu := float32(muStart[mu>>4&7]+int(mu&15)*muStep[mu>>4&7]) / 8192
		if mu >= 128 {
			wantMu = -wantMu
		}
		if aLaw[i] != wantA || muLaw[i] != wantMu {
			t.Errorf("byte %02x: A-law %v, mu-law %v, want %v and %v", i, aLaw[i], muLaw[i], wantA, wantMu)
		}
	}
}

func TestMix(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		in       []float64
		channels int
		want     []float32
		bad      int64
	}{
		{[]float64{0.5, -0.25}, 1, []float32{0.5, -0.25}, 0},
		{[]float64{1, 0, 0.5, 0.5, -1, 1}, 2, []float32{0.5, 0.5, 0}, 0},
		{[]float64{0.3, 0.3, 0.3, 0.3, 0.3, 0.9}, 6, []float32{0.4}, 0},
		{[]float64{nan, inf, -inf, 1}, 1, []float32{0, 0, 0, 1}, 3},
		{[]float64{nan, 1}, 2, []float32{0.5}, 1},
		{[]float64{3e38, -1e300, 65536, 32768}, 1, []float32{65536, -65536, 65536, 32768}, 0},
		{[]float64{math.MaxFloat64, math.MaxFloat64}, 2, []float32{65536}, 0},
	} {
		got := make([]float32, len(c.in)/c.channels)
		var in []float32
		for _, v := range c.in {
			in = append(in, narrow(v))
		}
		m := mixer{channels: c.channels}
		if m.mix(got, in); m.bad != c.bad || !slices.Equal(got, c.want) {
			t.Errorf("mixing %v of %d channels gives %v, %d; want %v, %d", c.in, c.channels, got, m.bad, c.want, c.bad)
		}
	}
	got := make([]float32, 2)
	m := mixer{channels: 3, pick: 2}
	if m.mix(got, []float32{1, 2, 3, 4, float32(nan), 6}); got[0] != 2 || got[1] != 0 || m.bad != 1 {
		t.Errorf("the second channel is %v, %d bad", got, m.bad)
	}
}
