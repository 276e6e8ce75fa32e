package parakeet

import (
	"fmt"
	"math"
	"testing"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// reference is the encoder once more, in float64, from the checkpoint's tensors as they are: no tiles, no folding, the whole matrix of
// scores with a band of it left out, batch norm by its formula, Conv2d on channels-first planes. It shares no code with the package
// but the position table.
type reference struct {
	c checkpoint.Config
	t memoryTensors
}

type plane [][]float64 // [rows][cols]

func (r reference) get(name string) []float32 { return r.t[name].values }

// encode gives the subsampling's output, scaled, and the encoder's.
func (r reference) encode(in LogMel, a Attention) (sub, out plane) {
	sub = r.subsample(in)
	if r.c.ScaleInput {
		for _, row := range sub {
			for i := range row {
				row[i] *= math.Sqrt(float64(r.c.DModel))
			}
		}
	}
	out = clonePlane(sub)
	for i := range r.c.Layers {
		r.block(out, fmt.Sprintf("encoder.layers.%d.", i), a)
	}
	return sub, out
}

func clonePlane(p plane) plane {
	q := make(plane, len(p))
	for i := range p {
		q[i] = append([]float64(nil), p[i]...)
	}
	return q
}

// subsample runs the three stages on [channel][time][mel].
func (r reference) subsample(in LogMel) plane {
	first := make(plane, in.Frames)
	for t := range first {
		for m := range r.c.Mels {
			first[t] = append(first[t], float64(in.Values[t*r.c.Mels+m]))
		}
	}
	const p = "encoder.subsampling.layers."
	x := make([]plane, r.c.SubsamplingChannels)
	for c := range x {
		x[c] = conv3x3(first, r.get(p + "0.weight")[9*c:], float64(r.get(p + "0.bias")[c]))
	}
	relu(x)
	for _, i := range []int{2, 5} {
		for c := range x {
			x[c] = conv3x3(x[c], r.get(fmt.Sprintf("%s%d.weight", p, i))[9*c:], float64(r.get(fmt.Sprintf("%s%d.bias", p, i))[c]))
		}
		x = pointwise(x, r.get(fmt.Sprintf("%s%d.weight", p, i+1)), r.get(fmt.Sprintf("%s%d.bias", p, i+1)))
		relu(x)
	}
	flat := make(plane, len(x[0]))
	for t := range flat {
		for c := range x {
			flat[t] = append(flat[t], x[c][t]...)
		}
	}
	return r.linear(flat, "encoder.subsampling.linear")
}

func conv3x3(in plane, k []float32, bias float64) plane {
	rows, cols := (len(in)-1)/2+1, (len(in[0])-1)/2+1
	out := make(plane, rows)
	for t := range out {
		out[t] = make([]float64, cols)
		for q := range out[t] {
			sum := bias
			for i := range 3 {
				for j := range 3 {
					if y, x := 2*t+i-1, 2*q+j-1; y >= 0 && y < len(in) && x >= 0 && x < len(in[0]) {
						sum += float64(k[3*i+j]) * in[y][x]
					}
				}
			}
			out[t][q] = sum
		}
	}
	return out
}

func pointwise(x []plane, w, b []float32) []plane {
	out := make([]plane, len(x))
	for o := range out {
		out[o] = clonePlane(x[0])
		for t := range out[o] {
			for q := range out[o][t] {
				sum := float64(b[o])
				for c := range x {
					sum += float64(w[o*len(x)+c]) * x[c][t][q]
				}
				out[o][t][q] = sum
			}
		}
	}
	return out
}

func relu(x []plane) {
	for _, p := range x {
		for _, row := range p {
			for i := range row {
				row[i] = max(row[i], 0)
			}
		}
	}
}

// linear applies name.weight and, where it exists, name.bias.
func (r reference) linear(x plane, name string) plane {
	w, b := r.get(name+".weight"), r.get(name+".bias")
	in := len(x[0])
	out := make(plane, len(x))
	for t := range x {
		out[t] = make([]float64, len(w)/in)
		for o := range out[t] {
			sum := 0.0
			if b != nil {
				sum = float64(b[o])
			}
			for k, v := range x[t] {
				sum += float64(w[o*in+k]) * v
			}
			out[t][o] = sum
		}
	}
	return out
}

func (r reference) layerNorm(x plane, name string) plane {
	w, b := r.get(name+".weight"), r.get(name+".bias")
	out := clonePlane(x)
	for _, row := range out {
		mean, variance := 0.0, 0.0
		for _, v := range row {
			mean += v / float64(len(row))
		}
		for _, v := range row {
			variance += (v - mean) * (v - mean) / float64(len(row))
		}
		for i, v := range row {
			row[i] = (v-mean)/math.Sqrt(variance+1e-5)*float64(w[i]) + float64(b[i])
		}
	}
	return out
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func silu(x plane) plane {
	for _, row := range x {
		for i, v := range row {
			row[i] = v * sigmoid(v)
		}
	}
	return x
}

func addTo(x, y plane, scale float64) {
	for t := range x {
		for i := range x[t] {
			x[t][i] += scale * y[t][i]
		}
	}
}

func (r reference) block(x plane, b string, a Attention) {
	feedForward := func(n string) {
		z := silu(r.linear(r.layerNorm(x, b+"norm_feed_forward"+n), b+"feed_forward"+n+".linear1"))
		addTo(x, r.linear(z, b+"feed_forward"+n+".linear2"), 0.5)
	}
	feedForward("1")
	addTo(x, r.attention(r.layerNorm(x, b+"norm_self_att"), b+"self_attn.", a), 1)
	addTo(x, r.conv(r.layerNorm(x, b+"norm_conv"), b+"conv."), 1)
	feedForward("2")
	copy(x, r.layerNorm(x, b+"norm_out"))
}

func (r reference) attention(z plane, b string, a Attention) plane {
	q, k, v := r.linear(z, b+"q_proj"), r.linear(z, b+"k_proj"), r.linear(z, b+"v_proj")
	u, vb := r.get(b+"bias_u"), r.get(b+"bias_v")
	n, d := len(z), len(z[0])
	table := make([]float32, (2*n-1)*d)
	fillPositions(table, 1-n, frequencies(d))
	positions := make(plane, 2*n-1)
	for i := range positions {
		for _, f := range table[i*d : (i+1)*d] {
			positions[i] = append(positions[i], float64(f))
		}
	}
	p := r.linear(positions, b+"relative_k_proj") // row n-1 is offset 0
	width := d / r.c.Heads
	out := make(plane, n)
	for i := range out {
		out[i] = make([]float64, d)
		for h := range r.c.Heads {
			weights, total := make([]float64, n), 0.0
			for j := range n {
				if !a.IsFull() && (i-j > a.Left || j-i > a.Right) {
					continue
				}
				sum := 0.0
				for c := h * width; c < (h+1)*width; c++ {
					sum += (q[i][c]+float64(u[c]))*k[j][c] + (q[i][c]+float64(vb[c]))*p[i-j+n-1][c]
				}
				weights[j] = math.Exp(sum / math.Sqrt(float64(width)))
				total += weights[j]
			}
			for j, w := range weights {
				for c := h * width; c < (h+1)*width; c++ {
					out[i][c] += w / total * v[j][c]
				}
			}
		}
	}
	return r.linear(out, b+"o_proj")
}

func (r reference) conv(z plane, b string) plane {
	g := r.linear(z, b+"pointwise_conv1")
	d := len(z[0])
	for t := range g {
		for c := range d {
			g[t][c] *= sigmoid(g[t][d+c])
		}
	}
	kernel, bias := r.get(b+"depthwise_conv.weight"), r.get(b+"depthwise_conv.bias")
	gamma, beta := r.get(b+"norm.weight"), r.get(b+"norm.bias")
	mean, variance := r.get(b+"norm.running_mean"), r.get(b+"norm.running_var")
	taps := r.c.ConvKernel
	out := make(plane, len(z))
	for t := range out {
		out[t] = make([]float64, d)
		for c := range d {
			sum := 0.0
			if bias != nil {
				sum = float64(bias[c])
			}
			for j := range taps {
				if in := t + j - taps/2; in >= 0 && in < len(z) {
					sum += float64(kernel[c*taps+j]) * g[in][c]
				}
			}
			out[t][c] = (sum-float64(mean[c]))/math.Sqrt(float64(variance[c])+1e-5)*float64(gamma[c]) + float64(beta[c])
		}
	}
	return r.linear(silu(out), b+"pointwise_conv2")
}

// float32s flattens.
func (p plane) float32s() []float32 {
	var v []float32
	for _, row := range p {
		for _, x := range row {
			v = append(v, float32(x))
		}
	}
	return v
}

// TestReference holds the reference itself against NeMo's vectors.
func TestReference(t *testing.T) {
	t.Parallel()
	g := readGolden(t)
	for _, c := range []struct {
		name          string
		biases, scale bool
		attention     Attention
		want          []float32
	}{
		{"full", false, false, Full, g.Encoder},
		{"local", false, false, Attention{4, 4}, g.EncoderLocal},
		{"biases", true, true, Full, g.EncoderBias},
	} {
		config := tinyConfig(c.biases, c.scale)
		_, got := reference{config, tinyTensors(t, config)}.encode(g.logMel(), c.attention)
		within(t, c.name, got.float32s(), c.want, 1e-4)
	}
}
