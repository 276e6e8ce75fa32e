package parakeet

import (
	"context"

	"github.com/aviary-asr/aviary/asr/ml"
)

// attention is x + out(relative-position attention(norm(x))).
type attention struct {
	norm     ml.Norm
	qkv      ml.Linear // the projections of queries, keys and values as one
	out      ml.Linear
	position ml.Linear // projects positions; never has a bias
	u, v     ml.Weight // biases of the content and the position term: pos_bias_u, pos_bias_v
}

func loadAttention(c Config, l *loader, b string) attention {
	d, heads := c.DModel, c.Heads
	return attention{
		norm:     l.norm(b+"norm_self_att", d),
		qkv:      l.stacked(attentionName(b, ""), []string{"q_proj", "k_proj", "v_proj"}, d, d, c.AttentionBias),
		out:      l.linear(attentionName(b, "o_proj"), d, d, c.AttentionBias, ml.UseLinear),
		position: l.linear(attentionName(b, "relative_k_proj"), d, d, false, ml.UseLinear),
		u:        l.plain(attentionName(b, "bias_u"), heads, d/heads),
		v:        l.plain(attentionName(b, "bias_v"), heads, d/heads),
	}
}

// forward attends with the projected positions r, the first of which is the offset first.
func (a *attention) forward(ctx context.Context, c Config, p *pass, r ml.Tensor, first int) error {
	d := c.DModel
	err := p.rowBlocks(func(x, z ml.Tensor, at rows) error {
		if err := p.b.LayerNorm(ctx, z, x, a.norm); err != nil {
			return err
		}
		return p.b.Linear(ctx, p.qkv.RowRange(at.first, at.last), z, a.qkv, ml.Epilogue{})
	})
	if err != nil {
		return err
	}
	q := p.qkv.ColRange(0, d)
	err = p.b.Attention(ctx, q, ml.RelAttention{
		Q: q, K: p.qkv.ColRange(d, 2*d), V: p.qkv.ColRange(2*d, 3*d),
		R: r, MinOffset: first, U: a.u, V0: a.v,
		Heads: c.Heads, Left: p.window.Left, Right: p.window.Right,
	})
	if err != nil {
		return err
	}
	return p.b.Linear(ctx, p.x, q, a.out, ml.Epilogue{Residual: p.x})
}
