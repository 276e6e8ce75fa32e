package parakeet

import (
	"context"

	"github.com/aviary-asr/aviary/asr/ml"
)

// feedForward is half of a residual: x + 0.5 * down(SiLU(up(norm(x)))).
type feedForward struct {
	norm     ml.Norm
	up, down ml.Linear
}

func loadFeedForward(c Config, l *loader, b, number string) feedForward {
	name := b + "feed_forward" + number
	return feedForward{
		norm: l.norm(b+"norm_feed_forward"+number, c.DModel),
		up:   l.linear(name+".linear1", c.FFDim, c.DModel, c.AttentionBias, ml.UseLinear),
		down: l.linear(name+".linear2", c.DModel, c.FFDim, c.AttentionBias, ml.UseLinear),
	}
}

// forward goes in row blocks, so that the hidden layer, four times as wide as x, is never there as a whole.
func (f *feedForward) forward(ctx context.Context, p *pass) error {
	return p.rowBlocks(func(x, z ml.Tensor, _ rows) error {
		if err := p.b.LayerNorm(ctx, z, x, f.norm); err != nil {
			return err
		}
		hidden := p.hidden.RowRange(0, x.Rows)
		if err := p.b.Linear(ctx, hidden, z, f.up, ml.Epilogue{Act: ml.SiLU}); err != nil {
			return err
		}
		return p.b.Linear(ctx, x, hidden, f.down, ml.Epilogue{Scale: 0.5, Residual: x})
	})
}
