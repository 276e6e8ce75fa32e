package logmel

import "math"

// melFilter is one triangle of the filterbank: weights for the bins from first
// on; all others are zero.
type melFilter struct {
	first   int
	weights []float64
}

// energy weighs a power spectrum.
func (f *melFilter) energy(power *[NFFT/2 + 1]float64) float64 {
	sum := 0.0
	for i, p := range power[f.first:][:len(f.weights)] {
		sum += f.weights[i] * p
	}
	return sum
}

// Slaney's mel scale (Auditory Toolbox, 1998, as in librosa): linear below
// 1000 Hz, 200/3 Hz to the mel, and logarithmic above, 27 mels to a factor 6.4.
const (
	melKnee   = 1000.0 // Hz
	melLinear = 200.0 / 3
	melAtKnee = melKnee / melLinear // 15
)

var melLog = math.Log(6.4) / 27

func hzToMel(hz float64) float64 {
	if hz < melKnee {
		return hz / melLinear
	}
	return melAtKnee + math.Log(hz/melKnee)/melLog
}

func melToHz(mel float64) float64 {
	if mel < melAtKnee {
		return mel * melLinear
	}
	return melKnee * math.Exp(melLog*(mel-melAtKnee))
}

// melBank makes n triangles of equal area, equally spaced in mels from 0 Hz to
// half the sample rate. The weights are computed in float64 and rounded to
// float32, in which the reference keeps them.
func melBank(n int) []melFilter {
	edges := make([]float64, n+2)
	top := hzToMel(SampleRate / 2)
	for i := range edges {
		edges[i] = melToHz(top * float64(i) / float64(n+1))
	}
	bank := make([]melFilter, n)
	for m := range bank {
		left, center, right := edges[m], edges[m+1], edges[m+2]
		area := 2 / (right - left)
		for b := range NFFT/2 + 1 {
			hz := float64(b) * SampleRate / NFFT
			w := min((hz-left)/(center-left), (right-hz)/(right-center))
			if w <= 0 {
				continue
			}
			if len(bank[m].weights) == 0 {
				bank[m].first = b
			}
			bank[m].weights = append(bank[m].weights, float64(float32(w*area)))
		}
	}
	return bank
}
