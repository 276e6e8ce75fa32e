package parakeet

import (
	"context"

	"github.com/aviary-asr/aviary/asr/ml"
)

// convModule is x + out(SiLU(batchnorm(depthwise(GLU(in(norm(x))))))), the batch norm folded into the depthwise filter.
type convModule struct {
	norm      ml.Norm
	in        ml.Linear // to twice the width, gated
	depthwise ml.Filter
	out       ml.Linear
}

func loadConvModule(c Config, l *loader, b string) convModule {
	d := c.DModel
	return convModule{
		norm:      l.norm(b+"norm_conv", d),
		in:        l.linear(b+"conv.pointwise_conv1", 2*d, d, c.ConvBias, ml.UseGated),
		depthwise: l.foldedConv(b+"conv.depthwise_conv", b+"conv.norm", d, c.ConvKernel, c.ConvBias),
		out:       l.linear(b+"conv.pointwise_conv2", d, d, c.ConvBias, ml.UseLinear),
	}
}

func (m *convModule) forward(ctx context.Context, p *pass) error {
	err := p.rowBlocks(func(x, z ml.Tensor, at rows) error {
		if err := p.b.LayerNorm(ctx, z, x, m.norm); err != nil {
			return err
		}
		return p.b.Linear(ctx, p.gated.RowRange(at.first, at.last), z, m.in, ml.Epilogue{Act: ml.GLU})
	})
	if err != nil {
		return err
	}
	if err := p.b.DepthwiseConv(ctx, p.filtered, p.gated, m.depthwise, ml.SiLU); err != nil {
		return err
	}
	return p.b.Linear(ctx, p.x, p.filtered, m.out, ml.Epilogue{Residual: p.x})
}
