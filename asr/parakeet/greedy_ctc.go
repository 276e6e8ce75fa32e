package parakeet

import (
	"context"
	"fmt"

	"github.com/aviary-asr/aviary/asr/ml"
)

// DecodeCTC takes the best class of every frame of the last pass, joins runs of the same, and drops blanks. A piece that comes twice with a
// blank between is two pieces.
func (s *Session) DecodeCTC(ctx context.Context) ([]Token, error) {
	c := s.model.Config
	if s.encoded == 0 {
		return nil, errNothingEncoded
	}
	if !c.Kind.HasCTC() {
		return nil, fmt.Errorf("parakeet: a model of kind %q has no CTC head", c.Kind)
	}
	var collapse collapser
	err := s.ctcArgmax(ctx, func(frame, class int) { collapse.add(frame, class, c.BlankID) })
	if err != nil {
		return nil, fmt.Errorf("parakeet: decode: %w", err)
	}
	return collapse.tokens, nil
}

// ctcArgmax visits the best class of every frame. Logits exist for a block of rows at a time.
func (s *Session) ctcArgmax(ctx context.Context, visit func(frame, class int)) error {
	b, x := s.model.backend, s.pass.x
	logits := s.layout.ctc.in(s.buf)
	best := make([]int, logits.Rows)
	for a := 0; a < x.Rows; a += logits.Rows {
		n := min(logits.Rows, x.Rows-a)
		part := logits.RowRange(0, n)
		if err := b.Linear(ctx, part, x.RowRange(a, a+n), s.model.ctc, ml.Epilogue{}); err != nil {
			return err
		}
		if err := s.dump(ctx, part, "dec.ctc.%d", a); err != nil {
			return err
		}
		if err := b.Argmax(ctx, best[:n], part); err != nil {
			return err
		}
		for i, class := range best[:n] {
			visit(a+i, class)
		}
	}
	return nil
}

// collapser joins runs.
type collapser struct {
	tokens []Token
	last   int // class of the frame before, plus one; 0 at the start
}

func (c *collapser) add(frame, class, blank int) {
	switch {
	case class == blank:
	case c.last == class+1:
		c.tokens[len(c.tokens)-1].Duration++
	default:
		c.tokens = append(c.tokens, Token{ID: class, Frame: EncoderFrames(frame), Duration: 1})
	}
	c.last = class + 1
}
