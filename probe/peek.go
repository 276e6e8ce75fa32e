package probe

import (
	"context"
	"io"
	"slices"

	"github.com/aviary-asr/aviary"
)

// Peek implements aviary.Prober. What has arrived is treated like a file that ends there: its claim counts, and so does what it holds so far. That
// such a file is cut off is no news.
func (p *Prober) Peek(ctx context.Context, r io.ReaderAt, received int64) error {
	const op = "peek"
	err := p.peek(ctx, r, received)
	certain := []aviary.Code{aviary.CodeMediaTypeUnsupported, aviary.CodeAudioNoStream, aviary.CodeAudioTooLong, aviary.CodeCanceled, aviary.CodeInternal}
	if slices.Contains(certain, aviary.CodeOf(err)) {
		return report(op, err)
	}
	return nil
}

func (p *Prober) peek(ctx context.Context, r io.ReaderAt, received int64) error {
	const op = "peek"
	t, err := p.openAs(ctx, r, received, true)
	if err != nil {
		return err
	}
	defer t.close()
	a := t.about()
	if err := a.claimTooLong(op, p.cfg.MaxDuration); err != nil {
		return err
	}
	if a.decodesToCount {
		return nil
	}
	most := framesWithin(p.cfg.MaxDuration, a.rate)
	held, err := t.count(ctx, most)
	if held > most {
		return tooLong(op, durationOf(held, a.rate), p.cfg.MaxDuration)
	}
	return err
}
