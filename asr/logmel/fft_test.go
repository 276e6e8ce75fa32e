package logmel

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"
)

// TestPowerEqualsTheDefinition compares with the sum that defines the discrete
// Fourier transform, on noise, impulses and tones.
func TestPowerEqualsTheDefinition(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	inputs := map[string]func(n int) float64{
		"noise":            func(int) float64 { return r.Float64() - 0.5 },
		"impulse at 0":     func(n int) float64 { return b2f(n == 0) },
		"impulse at 5":     func(n int) float64 { return b2f(n == 5) },
		"impulse at 511":   func(n int) float64 { return b2f(n == 511) },
		"constant":         func(int) float64 { return 1 },
		"highest tone":     func(n int) float64 { return float64(1 - 2*(n%2)) },
		"tone in bin 3":    func(n int) float64 { return math.Cos(2 * math.Pi * 3 * float64(n) / NFFT) },
		"tone between":     func(n int) float64 { return math.Sin(2 * math.Pi * 100.5 * float64(n) / NFFT) },
		"only odd samples": func(n int) float64 { return float64(n%2) * r.NormFloat64() },
	}
	tables := newFFTTables()
	for name, input := range inputs {
		var in [NFFT]float64
		var got [half + 1]float64
		for n := range in {
			in[n] = input(n)
		}
		tables.power(&in, new(fftScratch), &got)
		for k := range got {
			sum := complex(0, 0)
			for n, x := range in {
				sum += complex(x, 0) * cmplx.Exp(complex(0, -2*math.Pi*float64(n*k%NFFT)/NFFT))
			}
			want := real(sum)*real(sum) + imag(sum)*imag(sum)
			if math.Abs(got[k]-want) > 1e-9*max(1, want) {
				t.Errorf("%s: bin %d = %v, want %v", name, k, got[k], want)
			}
		}
	}
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func BenchmarkPower(b *testing.B) {
	tables := newFFTTables()
	var in [NFFT]float64
	var out [half + 1]float64
	var s fftScratch
	for n := range in {
		in[n] = float64(n % 7)
	}
	for b.Loop() {
		tables.power(&in, &s, &out)
	}
}
