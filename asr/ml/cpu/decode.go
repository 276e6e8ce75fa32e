package cpu

import (
	"context"
	"fmt"
	"math"

	"github.com/aviary-asr/aviary/asr/ml"
)

// Embed looks rows up.
func (b *Backend) Embed(ctx context.Context, dst ml.Tensor, table ml.Weight, ids []int) error {
	ml.CheckEmbed(dst, table, ids)
	m := table.(*matrix)
	if m.spec.Use != ml.UseRows {
		panic(ml.ShapeErrorf("Embed", "the matrix was uploaded for another use"))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	out := view(dst)
	width := m.spec.Cols
	for i, id := range ids {
		row := out.row(i)
		if m.rows32 != nil {
			copy(row, m.rows32[id*width:(id+1)*width])
			continue
		}
		for c, v := range m.rows16[id*width : (id+1)*width] {
			row[c] = ml.WidenBFloat16(v)
		}
	}
	return nil
}

// LSTM advances one layer.
func (b *Backend) LSTM(ctx context.Context, h, c, x ml.Tensor, l ml.LSTM) error {
	ml.CheckLSTM(h, c, x, l)
	hidden := h.Cols
	gates := b.own(&b.gates, x.Rows, 4*hidden)
	if err := b.Linear(ctx, gates, x, ml.Linear{W: l.WX, B: l.B}, ml.Epilogue{}); err != nil {
		return err
	}
	if err := b.Linear(ctx, gates, h, ml.Linear{W: l.WH}, ml.Epilogue{Residual: gates}); err != nil {
		return err
	}
	g, hm, cm := view(gates), view(h), view(c)
	for r := range g.rows {
		row, hr, cr := g.row(r), hm.row(r), cm.row(r)
		for i := range hidden {
			in, forget := logistic(row[i]), logistic(row[hidden+i])
			cell, out := math.Tanh(float64(row[2*hidden+i])), logistic(row[3*hidden+i])
			next := forget*float64(cr[i]) + in*cell
			cr[i] = float32(next)
			hr[i] = float32(out * math.Tanh(next))
		}
	}
	return nil
}

// logistic is the sigmoid in float64: the state runs through it once per token, thousands of times.
func logistic(x float32) float64 { return 1 / (1 + math.Exp(-float64(x))) }

// Joint evaluates the joint network and chooses.
func (b *Backend) Joint(ctx context.Context, logits, f, p ml.Tensor, head ml.Linear, tokens int, out []ml.Choice) error {
	ml.CheckJoint(logits, f, p, head, tokens, out)
	hidden := b.own(&b.hidden, f.Rows, f.Cols)
	hm, fm, pm := view(hidden), view(f), view(p)
	for r := range hm.rows {
		h, x, y := hm.row(r), fm.row(r), pm.row(r)
		for c := range h {
			h[c] = max(x[c]+y[c], 0)
		}
	}
	if err := b.Linear(ctx, logits, hidden, head, ml.Epilogue{}); err != nil {
		return err
	}
	lm := view(logits)
	for r := range out {
		row := lm.row(r)
		choice := ml.Choice{Token: argmax(row[:tokens])}
		if tokens < len(row) {
			choice.Duration = argmax(row[tokens:])
		}
		if choice.Token < 0 || choice.Duration < 0 {
			return fmt.Errorf("joint network: %w", ml.ErrNotFinite)
		}
		out[r] = choice
	}
	return nil
}

// Argmax finds the first maximum of each row.
func (b *Backend) Argmax(ctx context.Context, out []int, x ml.Tensor) error {
	ml.CheckArgmax(out, x)
	if err := ctx.Err(); err != nil {
		return err
	}
	m := view(x)
	for r := range out {
		if out[r] = argmax(m.row(r)); out[r] < 0 {
			return fmt.Errorf("argmax of row %d: %w", r, ml.ErrNotFinite)
		}
	}
	return nil
}

// argmax is the index of the first maximum, or -1 where there is nothing above -Inf.
func argmax(v []float32) int {
	best, top := -1, float32(math.Inf(-1))
	for i, x := range v {
		if x > top {
			best, top = i, x
		}
	}
	return best
}
