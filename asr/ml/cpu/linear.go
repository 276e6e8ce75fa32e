package cpu

import (
	"context"

	"github.com/aviary-asr/aviary/asr/ml"
)

// linearTask computes one tile of rows x columns per block.
type linearTask struct {
	dst, x, residual mat
	w                *matrix
	bias             []float32
	act              ml.Activation
	scale            float32
	rowTiles         int
}

// Linear computes dst = residual + scale * act(x W^T + b).
func (b *Backend) Linear(ctx context.Context, dst, x ml.Tensor, l ml.Linear, e ml.Epilogue) error {
	ml.CheckLinear(dst, x, l, e)
	w := l.W.(*matrix)
	if gated := w.spec.Use == ml.UseGated; w.spec.Use == ml.UseRows || gated != (e.Act == ml.GLU) {
		panic(ml.ShapeErrorf("Linear", "the matrix was uploaded for another use"))
	}
	t := &b.linear
	*t = linearTask{dst: view(dst), x: view(x), w: w, bias: values(l.B), act: e.Act, scale: e.Scale}
	if e.Scale == 0 {
		t.scale = 1
	}
	if !e.Residual.IsZero() {
		t.residual = view(e.Residual)
	}
	t.rowTiles = ceilDiv(t.x.rows, tileRows)
	colTiles := ceilDiv(w.panels*panelCols, tileCols)
	return b.pool.run(ctx, t, t.rowTiles*colTiles, t.x.rows*w.spec.Rows*w.spec.Cols)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// block computes tile i. Tiles that share columns follow each other, so that their weights are still in the cache.
func (t *linearTask) block(_ *job, w *worker, i int) {
	r0 := i % t.rowTiles * tileRows
	r1 := min(r0+tileRows, t.x.rows)
	p0 := i / t.rowTiles * (tileCols / panelCols)
	p1 := min(p0+tileCols/panelCols, t.w.panels)
	clear(w.acc[:(r1-r0)*tileCols])
	in := t.w.spec.Cols
	for k0 := 0; k0 < in; k0 += depth {
		k1 := min(k0+depth, in)
		for p := p0; p < p1; p++ {
			t.sum(w.acc[(p-p0)*panelCols:], t.w.panel(p, k0, k1, w.panel), r0, r1, k0)
		}
	}
	for r := r0; r < r1; r++ {
		t.store(w.acc[(r-r0)*tileCols:], r, p0)
	}
}

// sum adds to four columns of the accumulators the products of the rows r0 to r1, from input k0 on, with a panel.
func (t *linearTask) sum(acc []float32, panel [][4]float32, r0, r1, k0 int) {
	for r := r0; r < r1; r++ {
		s0, s1, s2, s3 := dot4(t.x.data[r*t.x.step+k0:], panel)
		c := (*[4]float32)(acc[(r-r0)*tileCols:])
		c[0] += s0
		c[1] += s1
		c[2] += s2
		c[3] += s3
	}
}

// store applies the epilogue to a row of the accumulators and writes its columns, from panel p0 on.
func (t *linearTask) store(acc []float32, r, p0 int) {
	if t.act == ml.GLU {
		t.storeGated(acc, r, p0)
		return
	}
	c0 := p0 * panelCols
	dst := t.dst.row(r)[c0:min(c0+tileCols, t.dst.cols)]
	acc = acc[:len(dst)]
	if t.bias != nil {
		for c, b := range t.bias[c0 : c0+len(dst)] {
			acc[c] += b
		}
	}
	activate(acc, t.act)
	t.finish(dst, acc, r, c0)
}

// storeGated combines panels of values and gates.
func (t *linearTask) storeGated(acc []float32, r, p0 int) {
	c0 := p0 / 2 * panelCols
	dst := t.dst.row(r)[c0:min(c0+tileCols/2, t.dst.cols)]
	for c := range dst {
		at := c/panelCols*2*panelCols + c%panelCols
		v, g := acc[at], acc[at+panelCols]
		if t.bias != nil {
			v += t.bias[c0+c]
			g += t.bias[t.dst.cols+c0+c]
		}
		// c <= at, and what is still to be read lies at or behind at: the value moves forward in place.
		acc[c] = v * sigmoid(g)
	}
	t.finish(dst, acc[:len(dst)], r, c0)
}

// finish scales and adds the residual.
func (t *linearTask) finish(dst, v []float32, r, c0 int) {
	v = v[:len(dst)]
	if t.residual.data == nil {
		for c := range dst {
			dst[c] = t.scale * v[c]
		}
		return
	}
	res := t.residual.row(r)[c0 : c0+len(dst)]
	for c := range dst {
		dst[c] = res[c] + t.scale*v[c]
	}
}

func activate(v []float32, act ml.Activation) {
	switch act {
	case ml.ReLU:
		for i, x := range v {
			v[i] = max(x, 0)
		}
	case ml.SiLU:
		for i, x := range v {
			v[i] = x * sigmoid(x)
		}
	case ml.None, ml.GLU: // GLU is not applied value by value
	}
}
