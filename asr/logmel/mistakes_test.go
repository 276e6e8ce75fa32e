package logmel

import (
	"math"
	"testing"
)

// The mistakes that porters of this front end have made, each with a test that
// it fails. The numbers are the reference's (NeMo in float32).

// TestMistake1WrongFilterbank: HTK's mel scale, edges rounded to FFT bins, no
// area normalization.
func TestMistake1WrongFilterbank(t *testing.T) {
	t.Parallel()
	type entry struct {
		m, b int
		want float64
	}
	for _, tt := range []struct {
		mels    int
		sum     float64
		entries []entry
	}{
		{80, 2.558260781399, []entry{{0, 1, 0.02253456}, {0, 2, 0.00863771}}},
		{128, 4.090487653877, []entry{
			{0, 1, 0.02837754}, {127, 250, 0.00522319}, {127, 251, 0.00435266}, {127, 252, 0.00348213},
			{127, 253, 0.00261159}, {127, 254, 0.00174106}, {127, 255, 0.00087053},
		}},
	} {
		bank := melBank(tt.mels)
		at := func(m, b int) float64 {
			if i := b - bank[m].first; i >= 0 && i < len(bank[m].weights) {
				return bank[m].weights[i]
			}
			return 0
		}
		sum := 0.0
		for m := range bank {
			if len(bank[m].weights) == 0 {
				t.Errorf("%d mels: row %d is empty", tt.mels, m)
			}
			if at(m, 0) != 0 || at(m, NFFT/2) != 0 {
				t.Errorf("%d mels: row %d has weight at 0 Hz or at half the sample rate", tt.mels, m)
			}
			for _, w := range bank[m].weights {
				sum += w
			}
		}
		if math.Abs(sum-tt.sum) > 1e-7 {
			t.Errorf("%d mels: the weights' sum is %.12f, want %.12f", tt.mels, sum, tt.sum)
		}
		for _, e := range tt.entries {
			if got := at(e.m, e.b); math.Abs(got-e.want) > 1e-8 {
				t.Errorf("%d mels: W[%d][%d] = %.8f, want %.8f", tt.mels, e.m, e.b, got, e.want)
			}
		}
	}
}

// TestMistake2WrongWindow: a periodic window, or one at the start of the 512
// samples.
func TestMistake2WrongWindow(t *testing.T) {
	t.Parallel()
	w := hann()
	for n, want := range map[int]float64{0: 0, 1: 6.198883e-05, 199: 0.99998450, 200: 0.99998450, 398: 6.198883e-05, 399: 0} {
		if math.Abs(w[n]-want) > 1e-8 {
			t.Errorf("w[%d] = %v, want %v", n, w[n], want)
		}
	}
	// Frame k hears the samples from 160k-200 to 160k+199 and no other; the
	// outermost two have weight zero.
	const k = 5
	silent := raw(t, 80, make([]float32, 3200))
	for offset, heard := range map[int]bool{-202: false, -201: false, -200: false, -199: true, 0: true, 197: true, 198: true, 199: false, 200: false} {
		x := make([]float32, 3200)
		x[Hop*k+offset] = 1000
		x[Hop*k+offset+1] = 1000 * Preemphasis // so that the pre-emphasis leaves one impulse, nearly
		x[Hop*k+offset+2] = 1000 * Preemphasis * Preemphasis
		for i := 3; i < 600; i++ { // and no step where it ends
			x[Hop*k+offset+i] = x[Hop*k+offset+i-1] * Preemphasis
		}
		got := raw(t, 80, x)[k*80+40]
		if (got > silent[k*80+40]+0.01) != heard {
			t.Errorf("an impulse at %d of the frame's center: log-mel %v, silence %v, want heard %v", offset, got, silent[k*80+40], heard)
		}
	}
}

// TestMistake3ReflectedEdges: frame 0 and 99 of TestReferenceValues feel the
// padding; this holds the padding itself and the number of frames.
func TestMistake3ReflectedEdges(t *testing.T) {
	t.Parallel()
	// Half of frame 0 is padding. Samples that lie there when reflected must not
	// count: the first frame of a signal equals that of the signal behind zeros.
	x := signal(3200)
	late := append(make([]float32, 10*Hop), x...)
	a, b := raw(t, 80, x), raw(t, 80, late)
	for m := range 80 {
		if got, want := a[m], b[10*80+m]; math.Abs(float64(got-want)) > 1e-6 {
			t.Fatalf("bin %d of frame 0 is %v, behind zeros %v", m, got, want)
		}
	}
	f := extract(t, 80, signal(16000))
	if f.Frames != 100 {
		t.Fatalf("16000 samples give %d frames, want 100", f.Frames)
	}
	for m := range 80 { // statistics over exactly those 100 frames
		sum, squares := 0.0, 0.0
		for k := range 100 {
			v := float64(f.Data[k*80+m])
			sum += v
			squares += v * v
		}
		// The floor of the standard deviation takes a little off 1.
		if math.Abs(sum/100) > 1e-5 || math.Abs(squares/99-1) > 1e-3 {
			t.Fatalf("bin %d has mean %v and variance %v over 100 frames, want 0 and 1", m, sum/100, squares/99)
		}
	}
}

// TestMistake4WrongEnergy: the magnitude or |re|+|im| in place of the power, or
// another guard before the logarithm. TestSilence holds the guard.
func TestMistake4WrongEnergy(t *testing.T) {
	t.Parallel()
	x := signal(3200)
	loud := make([]float32, len(x))
	for i := range x {
		loud[i] = 10 * x[i]
	}
	// Ten times the amplitude is a hundred times the power.
	a, b := raw(t, 80, x), raw(t, 80, loud)
	for i := range a {
		// Below about e^-10 the guard takes part of it.
		if a[i] > -10 && math.Abs(float64(b[i]-a[i])-math.Log(100)) > 0.005 {
			t.Fatalf("value %d rose by %v, want %v", i, b[i]-a[i], math.Log(100))
		}
	}
	// A turn of phase changes |re|+|im| but not the power.
	var in [NFFT]float64
	var first, second [half + 1]float64
	tables := newFFTTables()
	for n, out := range map[int]*[half + 1]float64{0: &first, 32: &second} {
		in = [NFFT]float64{}
		in[n] = 1
		tables.power(&in, new(fftScratch), out)
	}
	for k := range first {
		if math.Abs(first[k]-1) > 1e-12 || math.Abs(second[k]-1) > 1e-12 {
			t.Fatalf("power of an impulse in bin %d is %v and %v, want 1", k, first[k], second[k])
		}
	}
}

// TestMistake5NoPreemphasis: an impulse becomes 1, -0.97.
func TestMistake5NoPreemphasis(t *testing.T) {
	t.Parallel()
	x := make([]float32, 10)
	x[5] = 1
	for n, want := range map[int]float64{-1: 0, 0: 0, 4: 0, 5: 1, 6: -0.97, 7: 0, 9: 0, 10: 0} {
		if got := emphasized(x, n); got != want {
			t.Errorf("y[%d] = %v, want %v", n, got, want)
		}
	}
	x[0], x[9] = 0.5, 0.25
	if got := emphasized(x, 0); got != 0.5 {
		t.Errorf("y[0] = %v, want x[0]", got)
	}
	if got := emphasized(x, 10); got != 0 {
		t.Errorf("y[N] = %v: the pre-emphasis leaks past the end", got)
	}
}

// TestWhatEachMistakeCosts runs a second, plain implementation with each
// mistake in turn: without any it agrees with the package, and with one the
// golden tests would fail by the stated size.
func TestWhatEachMistakeCosts(t *testing.T) {
	t.Parallel()
	x := signal(16000)
	const mels = 128
	want := extract(t, mels, x).Data
	if worst := largestDifference(plain(x, mels, mistakes{}, byDefinition), want); worst > 1e-5 {
		t.Errorf("without a mistake the plain implementation differs by %v", worst)
	}
	for name, tt := range map[string]struct {
		m    mistakes
		cost float64
	}{
		"periodic Hann":            {mistakes{periodic: true}, 0.25},
		"window at the start":      {mistakes{windowAtStart: true}, 12.3},
		"reflect padding":          {mistakes{reflect: true}, 18.6},
		"population variance":      {mistakes{population: true}, 0.050},
		"guard 1e-5":               {mistakes{guard: 1e-5}, 3.4},
		"no pre-emphasis":          {mistakes{noEmphasis: true}, 4.45},
		"statistics over F+1":      {mistakes{oneMore: true}, 3.1},
		"magnitude, not the power": {mistakes{magnitude: true}, 0},
	} {
		worst := largestDifference(plain(x, mels, tt.m, byFFT), want)
		t.Logf("%s: %.3g", name, worst)
		if worst < 100*tolerance || tt.cost > 0 && math.Abs(worst-tt.cost) > 0.02*tt.cost {
			t.Errorf("%s costs %v, expected about %v", name, worst, tt.cost)
		}
	}
}

// mistakes of the plain implementation.
type mistakes struct {
	periodic, windowAtStart, reflect, population, noEmphasis, oneMore, magnitude bool

	guard float64
}

// plain follows the definition word for word: a padded copy of the signal, no
// shortcuts.
func plain(x []float32, mels int, bad mistakes, spectrum func(*[512]float64) [257]float64) []float32 {
	y := make([]float64, len(x))
	for n := range x {
		y[n] = float64(x[n])
		if n > 0 && !bad.noEmphasis {
			y[n] -= 0.97 * float64(x[n-1])
		}
	}
	padded := make([]float64, 256, len(y)+512)
	padded = append(append(padded, y...), make([]float64, 256)...)
	if bad.reflect {
		for i := range 256 {
			padded[255-i] = y[i+1]
			padded[256+len(y)+i] = y[len(y)-2-i]
		}
	}
	period, at := 399.0, 56
	if bad.periodic {
		period = 400
	}
	if bad.windowAtStart {
		at = 0
	}
	frames := len(x) / 160
	counted := frames
	if bad.oneMore {
		counted++
	}
	logs := make([]float64, counted*mels)
	bank := melBank(mels)
	window := make([]float64, 400)
	for n := range window {
		window[n] = 0.5 - 0.5*math.Cos(2*math.Pi*float64(n)/period)
	}
	floor := 0x1p-24
	if bad.guard > 0 {
		floor = bad.guard
	}
	for k := range counted {
		var framed [512]float64
		for n := range window {
			framed[n] = window[n] * padded[160*k+at+n] // a shift in time does not change the power
		}
		power := spectrum(&framed)
		if bad.magnitude {
			for b := range power {
				power[b] = math.Sqrt(power[b])
			}
		}
		for m := range bank {
			e := 0.0
			for i, w := range bank[m].weights {
				e += w * power[bank[m].first+i]
			}
			logs[k*mels+m] = math.Log(e + floor)
		}
	}
	out := make([]float32, frames*mels)
	for m := range mels {
		mean, variance := 0.0, 0.0
		for k := range counted {
			mean += logs[k*mels+m] / float64(counted)
		}
		for k := range counted {
			variance += (logs[k*mels+m] - mean) * (logs[k*mels+m] - mean)
		}
		n := float64(counted - 1)
		if bad.population {
			n++
		}
		for k := range frames {
			out[k*mels+m] = float32((logs[k*mels+m] - mean) / (math.Sqrt(variance/n) + 1e-5))
		}
	}
	return out
}

// byDefinition is the power spectrum as a sum for each bin.
func byDefinition(in *[512]float64) (power [257]float64) {
	for b := range power {
		re, im := 0.0, 0.0
		for n, v := range in {
			re += v * circle[b*n%512]
			im -= v * circle[(b*n+384)%512]
		}
		power[b] = re*re + im*im
	}
	return power
}

// circle has the cosine of each 512th of a turn; three quarters on is the sine.
var circle = func() (c [512]float64) {
	for i := range c {
		c[i] = math.Cos(2 * math.Pi * float64(i) / 512)
	}
	return c
}()

var sharedTables = newFFTTables()

// byFFT is the same by the package's FFT, which TestPowerEqualsTheDefinition
// holds to it.
func byFFT(in *[512]float64) (power [257]float64) {
	sharedTables.power(in, new(fftScratch), &power)
	return power
}

func largestDifference(a, b []float32) float64 {
	worst := 0.0
	for i := range a {
		worst = max(worst, math.Abs(float64(a[i])-float64(b[i])))
	}
	return worst
}
