package cpu

import (
	"context"
	"math"

	"github.com/aviary-asr/aviary/asr/ml"
)

// normRows is the number of rows of a block of LayerNorm.
const normRows = 16

type normTask struct {
	dst, x mat
	w, b   []float32
	eps    float64
}

// LayerNorm normalizes rows.
func (b *Backend) LayerNorm(ctx context.Context, dst, x ml.Tensor, n ml.Norm) error {
	ml.CheckLayerNorm(dst, x, n)
	t := &b.norm
	*t = normTask{dst: view(dst), x: view(x), w: values(n.W), b: values(n.B), eps: n.Eps}
	return b.pool.run(ctx, t, ceilDiv(t.x.rows, normRows), 4*t.x.rows*t.x.cols)
}

func (t *normTask) block(_ *job, _ *worker, i int) {
	for r := i * normRows; r < min((i+1)*normRows, t.x.rows); r++ {
		normalize(t.dst.row(r), t.x.row(r), t.w, t.b, t.eps)
	}
}

// normalize works in float64, in two passes: rows can have a mean far from zero.
func normalize(dst, x, w, b []float32, eps float64) {
	n := float64(len(x))
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	mean := sum / n
	squares := 0.0
	for _, v := range x {
		d := float64(v) - mean
		squares += d * d
	}
	inv := 1 / math.Sqrt(squares/n+eps)
	dst, w, b = dst[:len(x)], w[:len(x)], b[:len(x)]
	for c, v := range x {
		dst[c] = float32((float64(v)-mean)*inv)*w[c] + b[c]
	}
}
