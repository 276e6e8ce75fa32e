package mltest

import (
	"math"

	"github.com/aviary-asr/aviary/asr/ml"
)

// The definitions of package ml, in float64 and without any thought for speed.

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func act(x float64, a ml.Activation) float64 {
	switch a {
	case ml.ReLU:
		return max(x, 0)
	case ml.SiLU:
		return x * sigmoid(x)
	case ml.None, ml.GLU: // GLU needs two values
	}
	return x
}

// refLinear is x W^T + b with activation, before scale and residual.
func refLinear(x, w, bias []float32, rows, in, out int, a ml.Activation) []float64 {
	y := make([]float64, rows*out)
	for r := range rows {
		for o := range out {
			sum := 0.0
			for k := range in {
				sum += float64(x[r*in+k]) * float64(w[o*in+k])
			}
			if bias != nil {
				sum += float64(bias[o])
			}
			y[r*out+o] = sum
		}
	}
	if a != ml.GLU {
		for i := range y {
			y[i] = act(y[i], a)
		}
		return y
	}
	half := out / 2
	g := make([]float64, rows*half)
	for r := range rows {
		for o := range half {
			g[r*half+o] = y[r*out+o] * sigmoid(y[r*out+half+o])
		}
	}
	return g
}

func refLayerNorm(x, w, b []float32, rows, cols int, eps float64) []float64 {
	y := make([]float64, rows*cols)
	for r := range rows {
		mean, variance := 0.0, 0.0
		for c := range cols {
			mean += float64(x[r*cols+c])
		}
		mean /= float64(cols)
		for c := range cols {
			d := float64(x[r*cols+c]) - mean
			variance += d * d
		}
		variance /= float64(cols)
		for c := range cols {
			y[r*cols+c] = (float64(x[r*cols+c])-mean)/math.Sqrt(variance+eps)*float64(w[c]) + float64(b[c])
		}
	}
	return y
}

// attentionCase is the input of an attention in host memory.
type attentionCase struct {
	n, heads, d int
	q, k, v, r  []float32 // r has the offsets from min on
	u, vb       []float32
	min         int
	left, right int
}

// refAttention builds the whole matrix of scores, one head at a time.
func refAttention(a attentionCase) []float64 {
	width := a.heads * a.d
	out := make([]float64, a.n*width)
	scores := make([]float64, a.n)
	for h := range a.heads {
		for i := range a.n {
			top := math.Inf(-1)
			for j := range a.n {
				scores[j] = math.Inf(-1)
				if (a.left >= 0 && i-j > a.left) || (a.right >= 0 && j-i > a.right) {
					continue
				}
				sum := 0.0
				for c := range a.d {
					q := float64(a.q[i*width+h*a.d+c])
					sum += (q + float64(a.u[h*a.d+c])) * float64(a.k[j*width+h*a.d+c])
					sum += (q + float64(a.vb[h*a.d+c])) * float64(a.r[(i-j-a.min)*width+h*a.d+c])
				}
				scores[j] = sum / math.Sqrt(float64(a.d))
				top = max(top, scores[j])
			}
			total := 0.0
			for j := range a.n {
				scores[j] = math.Exp(scores[j] - top)
				total += scores[j]
			}
			for j := range a.n {
				for c := range a.d {
					out[i*width+h*a.d+c] += scores[j] / total * float64(a.v[j*width+h*a.d+c])
				}
			}
		}
	}
	return out
}

func refDepthwiseConv(x, w, b []float32, rows, cols, taps int, a ml.Activation) []float64 {
	y := make([]float64, rows*cols)
	for t := range rows {
		for c := range cols {
			sum := float64(b[c])
			for j := range taps {
				if in := t + j - taps/2; in >= 0 && in < rows {
					sum += float64(w[j*cols+c]) * float64(x[in*cols+c])
				}
			}
			y[t*cols+c] = act(sum, a)
		}
	}
	return y
}

// refConv2D is both 2-D convolutions: x has `from` channels, one or as many as the output.
func refConv2D(x, w, b []float32, g ml.Conv2D, from, channels int, a ml.Activation) []float64 {
	width := g.OutWidth()
	y := make([]float64, g.OutRows*width*channels)
	for t := range g.OutRows {
		for q := range width {
			for c := range channels {
				sum := float64(b[c])
				for i := range 3 {
					for j := range 3 {
						row, col := 2*t+g.Offset-1+i, 2*q-1+j
						if row < 0 || row >= g.InRows || col < 0 || col >= g.InWidth {
							continue
						}
						sum += float64(w[(3*i+j)*channels+c]) * float64(x[(row*g.InWidth+col)*from+c%from])
					}
				}
				y[(t*width+q)*channels+c] = act(sum, a)
			}
		}
	}
	return y
}

// refLSTM returns the new h and c.
func refLSTM(x, h, c, wx, wh, b []float32, rows, in, hidden int) (nh, nc []float64) {
	gx := refLinear(x, wx, b, rows, in, 4*hidden, ml.None)
	gh := refLinear(h, wh, nil, rows, hidden, 4*hidden, ml.None)
	nh, nc = make([]float64, rows*hidden), make([]float64, rows*hidden)
	for r := range rows {
		gate := func(g, i int) float64 { return gx[(r*4+g)*hidden+i] + gh[(r*4+g)*hidden+i] }
		for i := range hidden {
			cell := sigmoid(gate(1, i))*float64(c[r*hidden+i]) + sigmoid(gate(0, i))*math.Tanh(gate(2, i))
			nc[r*hidden+i] = cell
			nh[r*hidden+i] = sigmoid(gate(3, i)) * math.Tanh(cell)
		}
	}
	return nh, nc
}
