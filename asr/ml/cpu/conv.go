package cpu

import (
	"context"

	"github.com/aviary-asr/aviary/asr/ml"
)

// convRows is the number of output rows of a block of a convolution.
const convRows = 16

// convTask is the depthwise convolution over time.
type convTask struct {
	dst, x mat
	w      mat // [taps, channels]
	bias   []float32
	act    ml.Activation
}

// filter views the taps of a filter.
func filter(f ml.Filter) mat {
	p := f.W.(*param)
	return mat{data: p.data, rows: p.shape[0], cols: p.shape[1], step: p.shape[1]}
}

// DepthwiseConv filters columns over time.
func (b *Backend) DepthwiseConv(ctx context.Context, dst, x ml.Tensor, f ml.Filter, act ml.Activation) error {
	ml.CheckDepthwiseConv(dst, x, f, act)
	t := &b.conv
	*t = convTask{dst: view(dst), x: view(x), w: filter(f), bias: values(f.B), act: act}
	return b.pool.run(ctx, t, ceilDiv(t.x.rows, convRows), t.x.rows*t.x.cols*t.w.rows)
}

func (t *convTask) block(_ *job, _ *worker, i int) {
	for r := i * convRows; r < min((i+1)*convRows, t.x.rows); r++ {
		dst := t.dst.row(r)
		copy(dst, t.bias)
		first := r - t.w.rows/2
		for j := range t.w.rows {
			if in := first + j; in >= 0 && in < t.x.rows {
				multiplyAdd(dst, t.w.row(j), t.x.row(in))
			}
		}
		activate(dst, t.act)
	}
}

// multiplyAdd adds the products of a and b to dst.
func multiplyAdd(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for c := range dst {
		dst[c] += a[c] * b[c]
	}
}

// stemTask is the subsampling's first convolution.
type stemTask struct {
	dst, x mat
	w      mat
	bias   []float32
	g      ml.Conv2D
}

// ConvStem goes from one channel to all.
func (b *Backend) ConvStem(ctx context.Context, dst, mel ml.Tensor, f ml.Filter, g ml.Conv2D) error {
	ml.CheckConv2D("ConvStem", dst, mel, f, g, g.InRows, g.InWidth)
	t := &b.stem
	*t = stemTask{dst: view(dst), x: view(mel), w: filter(f), bias: values(f.B), g: g}
	return b.pool.run(ctx, t, g.OutRows, 9*t.dst.rows*t.dst.cols)
}

// block computes one row of time.
func (t *stemTask) block(_ *job, _ *worker, i int) {
	width := t.g.OutWidth()
	for q := range width {
		dst := t.dst.row(i*width + q)
		copy(dst, t.bias)
		for tap := range 9 {
			row, col := 2*i+t.g.Offset-1+tap/3, 2*q-1+tap%3
			if row < 0 || row >= t.g.InRows || col < 0 || col >= t.g.InWidth {
				continue
			}
			x := t.x.data[row*t.x.step+col]
			w := t.w.row(tap)[:len(dst)]
			for c := range dst {
				dst[c] += x * w[c]
			}
		}
		activate(dst, ml.ReLU)
	}
}

// conv2DTask is a depthwise convolution of the subsampling.
type conv2DTask struct {
	dst, x mat
	w      mat
	bias   []float32
	g      ml.Conv2D
}

// ConvDepthwise2D filters channels by themselves.
func (b *Backend) ConvDepthwise2D(ctx context.Context, dst, x ml.Tensor, f ml.Filter, g ml.Conv2D) error {
	ml.CheckConv2D("ConvDepthwise2D", dst, x, f, g, g.InRows*g.InWidth, f.W.Shape()[1])
	t := &b.conv2d
	*t = conv2DTask{dst: view(dst), x: view(x), w: filter(f), bias: values(f.B), g: g}
	return b.pool.run(ctx, t, g.OutRows, 9*t.dst.rows*t.dst.cols)
}

// block computes one row of time.
func (t *conv2DTask) block(_ *job, _ *worker, i int) {
	width := t.g.OutWidth()
	for q := range width {
		dst := t.dst.row(i*width + q)
		copy(dst, t.bias)
		for tap := range 9 {
			row, col := 2*i+t.g.Offset-1+tap/3, 2*q-1+tap%3
			if row >= 0 && row < t.g.InRows && col >= 0 && col < t.g.InWidth {
				multiplyAdd(dst, t.w.row(tap), t.x.row(row*t.g.InWidth+col))
			}
		}
	}
}
