package parakeet

import (
	"context"

	"github.com/aviary-asr/aviary/asr/ml"
)

// block is a Conformer block: half a feed-forward, attention, convolution, half a feed-forward, each added to the residual stream, and a
// norm that closes it. The encoder has no norm of its own after the last block.
type block struct {
	feedForward1 feedForward
	attention    attention
	conv         convModule
	feedForward2 feedForward
	norm         ml.Norm
}

func loadBlock(c Config, l *loader, name string) block {
	return block{
		feedForward1: loadFeedForward(c, l, name, "1"),
		attention:    loadAttention(c, l, name),
		conv:         loadConvModule(c, l, name),
		feedForward2: loadFeedForward(c, l, name, "2"),
		norm:         l.norm(name+"norm_out", c.DModel),
	}
}

func (b *block) forward(ctx context.Context, c Config, p *pass, r ml.Tensor, first int) error {
	if err := b.feedForward1.forward(ctx, p); err != nil {
		return err
	}
	if err := b.attention.forward(ctx, c, p, r, first); err != nil {
		return err
	}
	if err := b.conv.forward(ctx, p); err != nil {
		return err
	}
	if err := b.feedForward2.forward(ctx, p); err != nil {
		return err
	}
	return p.b.LayerNorm(ctx, p.x, p.x, b.norm)
}
