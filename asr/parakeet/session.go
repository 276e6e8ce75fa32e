package parakeet

import (
	"context"
	"fmt"

	"github.com/aviary-asr/aviary/asr/ml"
)

// Session is the memory of one pass at a time over a model. It grows when a pass needs more and is used again otherwise. A Session, and all
// sessions of one backend together, must be used by one goroutine at a time.
type Session struct {
	// Hooks may be set before a pass.
	Hooks Hooks

	model       *Model
	buf         ml.Buffer // nil: none yet
	local       localPositions
	layout      layout
	pass        pass
	encoded     EncoderFrames // of the last pass; 0 when it did not end
	frequencies []float32
	host        []float32 // rows of the position table on their way to the device
}

// Hooks look into a pass.
type Hooks struct {
	// Dump is called with the value of each stage, row-major, under the stage's name: enc.mel.in, enc.pre_encode.out (before the input is
	// scaled), enc.block.N.out, enc.final; dec.pred.N, the prediction network's output after N tokens; dec.joint.N, the logits of
	// the N-th evaluation of the joint network; dec.ctc.N, the logits of a block of rows from encoder frame N on. The slice is the callee's.
	Dump func(stage string, rows, cols int, values []float32)
	// Progress is called after each part of a pass with its share of the encoder's work, up to 1.
	Progress func(done float64)
}

// NewSession makes an empty session.
func (m *Model) NewSession() *Session {
	return &Session{model: m, frequencies: frequencies(m.Config.DModel), host: make([]float32, positionRows*m.Config.DModel)}
}

// Close gives the session's memory back.
func (s *Session) Close() {
	if s.buf != nil {
		s.buf.Release()
		s.buf = nil
	}
	s.local.release()
}

// Reserve makes room for passes over up to n frames with attention a, so that none of them allocates. Encode does it by itself when it
// has not been done.
func (s *Session) Reserve(n Frames, a Attention) error {
	if err := a.Valid(); err != nil {
		return fmt.Errorf("parakeet: %w", err)
	}
	b := s.model.backend
	if need := newLayout(s.model.Config, s.model.info.RowBlock, n, a).floats; s.buf == nil || s.buf.Floats() < need {
		if s.buf != nil {
			s.buf.Release()
			s.buf = nil
		}
		buf, err := b.Reserve(need)
		if err != nil {
			return fmt.Errorf("parakeet: memory for %d frames: %w", n, err)
		}
		s.buf = buf
	}
	if a.IsFull() || s.local.buf != nil && s.local.window == a {
		return nil
	}
	s.local.release()
	buf, err := b.Reserve(localFloats(s.model.Config, a))
	if err != nil {
		return fmt.Errorf("parakeet: memory for the positions of a window: %w", err)
	}
	s.local = localPositions{window: a, buf: buf}
	return nil
}

// pass is the tensors of a pass.
type pass struct {
	b      ml.Backend
	window Attention

	x, qkv, z, hidden, table, r ml.Tensor
	gated, filtered             ml.Tensor // the convolution module's, in the place of qkv
	tiles                       struct{ mel, stem, depthwise1, pointwise1, depthwise2, pointwise2 ml.Tensor }
}

// rowBlocks calls do for consecutive blocks of rows of x, with as many rows of z.
func (p *pass) rowBlocks(do func(x, z ml.Tensor, at rows) error) error {
	for a := 0; a < p.x.Rows; a += p.z.Rows {
		at := rows{a, min(a+p.z.Rows, p.x.Rows)}
		if err := do(p.x.RowRange(at.first, at.last), p.z.RowRange(0, at.len()), at); err != nil {
			return err
		}
	}
	return nil
}

// begin lays the tensors of a pass into the session's memory.
func (s *Session) begin(n Frames, a Attention) error {
	s.encoded = 0
	if err := s.Reserve(n, a); err != nil {
		return err
	}
	l := newLayout(s.model.Config, s.model.info.RowBlock, n, a)
	s.layout = l
	p := pass{b: s.model.backend, window: a}
	p.x, p.qkv, p.z, p.hidden, p.table = l.x.in(s.buf), l.qkv.in(s.buf), l.z.in(s.buf), l.hidden.in(s.buf), l.table.in(s.buf)
	if a.IsFull() {
		p.r = l.r.in(s.buf)
	}
	d := s.model.Config.DModel
	p.gated = ml.NewTensor(s.buf, l.qkv.at, l.encoded, d)
	p.filtered = ml.NewTensor(s.buf, l.qkv.at+l.encoded*d, l.encoded, d)
	t := &p.tiles
	t.mel, t.stem = l.mel.in(s.buf), l.stem.in(s.buf)
	t.depthwise1, t.pointwise1 = l.depthwise1.in(s.buf), l.pointwise1.in(s.buf)
	t.depthwise2, t.pointwise2 = l.depthwise2.in(s.buf), l.pointwise2.in(s.buf)
	s.pass = p
	return nil
}

// dump reads a tensor for the hook.
func (s *Session) dump(ctx context.Context, t ml.Tensor, format string, args ...any) error {
	if s.Hooks.Dump == nil {
		return nil
	}
	v := make([]float32, t.Rows*t.Cols)
	if err := s.model.backend.Read(ctx, v, t); err != nil {
		return err
	}
	s.Hooks.Dump(fmt.Sprintf(format, args...), t.Rows, t.Cols, v)
	return nil
}

func (s *Session) progress(done float64) {
	if s.Hooks.Progress != nil {
		s.Hooks.Progress(done)
	}
}
