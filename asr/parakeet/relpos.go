package parakeet

import (
	"context"
	"math"

	"github.com/aviary-asr/aviary/asr/ml"
)

// Relative positions: the row of offset p (query index minus key index; the past is positive) has sin(p w_i) at 2i and cos(p w_i) at
// 2i+1 with w_i = 10000^(-2i/d). Each block projects the rows with a matrix of its own.

// offsetsOf is the smallest offset that attention a needs among n frames, and their number. A local window's do not depend on n, so that
// its projected positions can be kept.
func offsetsOf(a Attention, n int) (first, count int) {
	if a.IsFull() {
		return 1 - n, 2*n - 1
	}
	return -a.Right, a.Left + a.Right + 1
}

// frequencies evaluates w_i as Hugging Face does, in float32: 1/10000^(2i/d). NeMo's formula differs in the last bit, which at offsets
// beyond 1,500 frames is more than 1e-4 in the table.
func frequencies(d int) []float32 {
	w := make([]float32, d/2)
	for i := range w {
		w[i] = 1 / float32(math.Pow(10000, float64(float32(2*i)/float32(d))))
	}
	return w
}

// fillPositions writes the rows of the offsets first, first+1, ... to dst, [rows][2 len(w)]. The angle is a float32 product, as in the
// references; sine and cosine are exact.
func fillPositions(dst []float32, first int, w []float32) {
	for r := range len(dst) / (2 * len(w)) {
		row := dst[r*2*len(w):]
		for i, f := range w {
			sin, cos := math.Sincos(float64(float32(first+r) * f))
			row[2*i], row[2*i+1] = float32(sin), float32(cos)
		}
	}
}

// positionRows is how many rows of the table are made on the host at a time.
const positionRows = 128

// writePositions fills a table on the device with the offsets from first on.
func (s *Session) writePositions(ctx context.Context, table ml.Tensor, first int) error {
	w := s.frequencies
	for a := 0; a < table.Rows; a += positionRows {
		part := table.RowRange(a, min(a+positionRows, table.Rows))
		host := s.host[:part.Rows*part.Cols]
		fillPositions(host, first+a, w)
		if err := s.model.backend.Write(ctx, part, host); err != nil {
			return err
		}
	}
	return nil
}

// localPositions are the projected positions of one window for every block. They depend on nothing else and are kept.
type localPositions struct {
	window Attention
	buf    ml.Buffer // nil: nothing is kept
	filled bool
}

// localFloats is the size of what is kept for a window.
func localFloats(c Config, a Attention) int {
	if a.IsFull() {
		return 0
	}
	return c.Layers * (a.Left + a.Right + 1) * c.DModel
}

// block is the part of block i.
func (l *localPositions) block(i, width int) ml.Tensor {
	rows := l.window.Left + l.window.Right + 1
	return ml.NewTensor(l.buf, i*rows*width, rows, width)
}

func (l *localPositions) release() {
	if l.buf != nil {
		l.buf.Release()
	}
	*l = localPositions{}
}

// preparePositions makes the table of the pass, and the projected positions of a window that is new.
func (s *Session) preparePositions(ctx context.Context, p *pass) error {
	if !p.window.IsFull() && s.local.filled {
		return nil
	}
	first, _ := offsetsOf(p.window, p.x.Rows)
	if err := s.writePositions(ctx, p.table, first); err != nil {
		return err
	}
	if p.window.IsFull() {
		return nil
	}
	for i := range s.model.blocks {
		r := s.local.block(i, p.x.Cols)
		if err := p.b.Linear(ctx, r, p.table, s.model.blocks[i].attention.position, ml.Epilogue{}); err != nil {
			return err
		}
	}
	s.local.filled = true
	return nil
}

// positions are the projected positions of block i, and the offset of their first row.
func (s *Session) positions(ctx context.Context, p *pass, i int) (r ml.Tensor, first int, err error) {
	first, _ = offsetsOf(p.window, p.x.Rows)
	if !p.window.IsFull() {
		return s.local.block(i, p.x.Cols), first, nil
	}
	return p.r, first, p.b.Linear(ctx, p.r, p.table, s.model.blocks[i].attention.position, ml.Epilogue{})
}
