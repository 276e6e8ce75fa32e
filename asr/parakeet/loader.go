package parakeet

import (
	"math"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/ml"
)

// NamedWeight is an uploaded weight under the name of (the first of) the tensors it was made from.
type NamedWeight struct {
	Name string
	ml.Weight
}

// loader reads tensors, brings them into the form in which they are used, and uploads them. With counting set it reads and uploads
// nothing and only counts the bytes: so the memory of a model is known before it is there, from the same code that loads it.
// The first error stops it.
type loader struct {
	backend ml.Backend
	info    ml.Info
	tensors checkpoint.Tensors
	dtype   ml.DType

	counting bool
	bytes    int64

	weights []NamedWeight
	scratch []float32
	used    int
	err     error
}

// room makes scratch for n floats in all and forgets what was read before. Scratch is kept: a large checkpoint would leave
// gigabytes to the garbage collector otherwise.
func (l *loader) room(n int) {
	l.used = 0
	if n > len(l.scratch) && !l.counting {
		l.scratch = make([]float32, n)
	}
}

// take is the next n floats of the scratch.
func (l *loader) take(n int) []float32 {
	l.used += n
	return l.scratch[l.used-n : l.used]
}

// read reads a tensor into the scratch.
func (l *loader) read(name string, n int) []float32 {
	if l.counting || l.err != nil {
		return nil
	}
	v := l.take(n)
	l.err = l.tensors.Float32(name, v)
	return v
}

// matrix uploads values that prepare makes.
func (l *loader) matrix(name string, rows, cols int, use ml.Use, prepare func() []float32) ml.Weight {
	spec := ml.MatrixSpec{Rows: rows, Cols: cols, DType: l.dtype, Use: use}
	l.bytes += l.info.MatrixBytes(spec)
	if l.counting || l.err != nil {
		return nil
	}
	values := prepare()
	if l.err != nil {
		return nil
	}
	return l.keep(name, func() (ml.Weight, error) { return l.backend.Matrix(spec, values) })
}

// param uploads a small parameter that prepare makes.
func (l *loader) param(name string, prepare func() []float32, shape ...int) ml.Weight {
	n := int64(4)
	for _, d := range shape {
		n *= int64(d)
	}
	l.bytes += n
	if l.counting || l.err != nil {
		return nil
	}
	values := prepare()
	if l.err != nil {
		return nil
	}
	return l.keep(name, func() (ml.Weight, error) { return l.backend.Param(shape, values) })
}

func (l *loader) keep(name string, upload func() (ml.Weight, error)) ml.Weight {
	w, err := upload()
	if err != nil {
		l.err = err
		return nil
	}
	l.weights = append(l.weights, NamedWeight{name, w})
	return w
}

// plain uploads a tensor as a parameter, as it is.
func (l *loader) plain(name string, shape ...int) ml.Weight {
	n := 1
	for _, d := range shape {
		n *= d
	}
	l.room(n)
	return l.param(name, func() []float32 { return l.read(name, n) }, shape...)
}

// linear loads name.weight as [out, in] and, if there is one, name.bias.
func (l *loader) linear(name string, out, in int, bias bool, use ml.Use) ml.Linear {
	l.room(out * in)
	w := ml.Linear{W: l.matrix(name+".weight", out, in, use, func() []float32 { return l.read(name+".weight", out*in) })}
	if bias {
		w.B = l.plain(name+".bias", out)
	}
	return w
}

// stacked loads several linears of the same input as one, their outputs side by side.
func (l *loader) stacked(prefix string, parts []string, out, in int, bias bool) ml.Linear {
	total := len(parts) * out
	l.room(total * in)
	w := ml.Linear{W: l.matrix(prefix+parts[0]+".weight", total, in, ml.UseLinear, func() []float32 {
		for _, p := range parts {
			l.read(prefix+p+".weight", out*in)
		}
		return l.scratch[:total*in]
	})}
	if bias {
		w.B = l.param(prefix+parts[0]+".bias", func() []float32 {
			l.room(total)
			for _, p := range parts {
				l.read(prefix+p+".bias", out)
			}
			return l.scratch[:total]
		}, total)
	}
	return w
}

// norm loads a layer norm.
func (l *loader) norm(name string, width int) ml.Norm {
	return ml.Norm{W: l.plain(name+".weight", width), B: l.plain(name+".bias", width), Eps: normEps}
}

// filter2D loads a convolution of 3x3 taps over one channel each, taps outermost.
func (l *loader) filter2D(name string, channels int) ml.Filter {
	const taps = 9
	l.room(2 * taps * channels)
	return ml.Filter{
		W: l.param(name+".weight", func() []float32 {
			return transpose(l.take(taps*channels), l.read(name+".weight", taps*channels), channels, taps)
		}, taps, channels),
		B: l.plain(name+".bias", channels),
	}
}

// transpose writes src, [rows][cols], to dst as [cols][rows].
func transpose(dst, src []float32, rows, cols int) []float32 {
	for r := range len(src) / cols {
		for c := range cols {
			dst[c*rows+r] = src[r*cols+c]
		}
	}
	return dst
}

// foldedConv loads a depthwise convolution over time and folds the batch norm behind it in, in float64:
// with s = weight/sqrt(variance+eps), taps become K*s and the bias (b-mean)*s + bias. Statistics are the trained ones, always.
func (l *loader) foldedConv(conv, norm string, channels, taps int, bias bool) ml.Filter {
	l.room((2*taps + 7) * channels)
	var w, b []float32
	fold := func() {
		kernel := l.read(conv+".weight", taps*channels)
		gamma, beta := l.read(norm+".weight", channels), l.read(norm+".bias", channels)
		mean, variance := l.read(norm+".running_mean", channels), l.read(norm+".running_var", channels)
		var own []float32
		if bias {
			own = l.read(conv+".bias", channels)
		}
		if l.err != nil {
			return
		}
		w, b = l.take(taps*channels), l.take(channels)
		for c := range channels {
			scale := float64(gamma[c]) / math.Sqrt(float64(variance[c])+normEps)
			shift := -float64(mean[c])
			if bias {
				shift += float64(own[c])
			}
			b[c] = float32(shift*scale + float64(beta[c]))
			for j := range taps {
				w[j*channels+c] = float32(float64(kernel[c*taps+j]) * scale)
			}
		}
	}
	return ml.Filter{
		W: l.param(conv+".weight", func() []float32 { fold(); return w }, taps, channels),
		B: l.param(conv+".bias", func() []float32 { return b }, channels),
	}
}
