package parakeet

import (
	"context"
	"fmt"
	"math"

	"github.com/aviary-asr/aviary/asr/ml"
)

// subsampling takes every 8 log-mel frames to one encoder frame: three 3x3 convolutions with stride 2, the second and third of them
// depthwise and followed by a pointwise one, and a linear layer.
type subsampling struct {
	stem       ml.Filter
	depthwise  [2]ml.Filter
	pointwise  [2]ml.Linear
	out        ml.Linear
	inputScale float32 // sqrt(d) for models trained with it, else 1
}

func loadSubsampling(c Config, l *loader) subsampling {
	const prefix = "encoder.subsampling."
	n := c.SubsamplingChannels
	s := subsampling{inputScale: 1}
	if c.ScaleInput {
		s.inputScale = float32(math.Sqrt(float64(c.DModel)))
	}
	s.stem = l.filter2D(prefix+"layers.0", n)
	for i, at := range []int{2, 5} {
		s.depthwise[i] = l.filter2D(fmt.Sprintf("%slayers.%d", prefix, at), n)
		s.pointwise[i] = l.linear(fmt.Sprintf("%slayers.%d", prefix, at+1), n, n, true, ml.UseLinear)
	}
	s.out = loadFlattened(c, l, prefix+"linear")
	return s
}

// loadFlattened loads the linear layer at the end. The checkpoint numbers its inputs c*Q+q, channels outermost; our planes are
// channels-last, so the columns are put in the order q*C+c.
func loadFlattened(c Config, l *loader, name string) ml.Linear {
	_, _, w := c.melWidths()
	n, d := c.SubsamplingChannels, c.DModel
	l.room(2 * d * n * w)
	return ml.Linear{
		W: l.matrix(name+".weight", d, n*w, ml.UseLinear, func() []float32 {
			src := l.read(name+".weight", d*n*w)
			dst := l.take(d * n * w)
			for o := range len(src) / (n * w) {
				transpose(dst[o*n*w:], src[o*n*w:(o+1)*n*w], n, w)
			}
			return dst
		}),
		B: l.plain(name+".bias", d),
	}
}

// rows are consecutive rows of a stage, from the first up to but not including the last.
type rows struct{ first, last int }

func (r rows) len() int { return r.last - r.first }

// input is the rows of the stage before, of n rows, that a stride-2 convolution reads for the rows r.
func (r rows) input(n int) rows { return rows{max(0, 2*r.first-1), min(n, 2*r.last)} }

// conv is the geometry of the convolution from the rows in to the rows r.
func (r rows) conv(in rows, width int) ml.Conv2D {
	return ml.Conv2D{InRows: in.len(), InWidth: width, OutRows: r.len(), Offset: 2*r.first - in.first}
}

// forward computes the encoder frames of tile, a range of p.x's rows. Each stage is computed from as many rows of the stage before
// as it needs, so tiles overlap inside; outside of the audio every stage sees zeros, not the convolution of zeros.
func (s *subsampling) forward(ctx context.Context, c Config, p *pass, in LogMel, tile rows) error {
	stage2 := (int(in.Frames)-1)/2 + 1 // rows of the stem's output
	stage3 := (stage2-1)/2 + 1
	r3 := tile
	r2 := r3.input(stage3)
	r1 := r2.input(stage2)
	r0 := r1.input(int(in.Frames))
	w1, w2, w3 := c.melWidths()

	t := &p.tiles
	mel := t.mel.RowRange(0, r0.len())
	if err := p.b.Write(ctx, mel, in.Values[r0.first*c.Mels:r0.last*c.Mels]); err != nil {
		return err
	}
	stem := t.stem.RowRange(0, r1.len()*w1)
	if err := p.b.ConvStem(ctx, stem, mel, s.stem, r1.conv(r0, c.Mels)); err != nil {
		return err
	}
	relu := ml.Epilogue{Act: ml.ReLU}
	depthwise1, pointwise1 := t.depthwise1.RowRange(0, r2.len()*w2), t.pointwise1.RowRange(0, r2.len()*w2)
	if err := p.b.ConvDepthwise2D(ctx, depthwise1, stem, s.depthwise[0], r2.conv(r1, w1)); err != nil {
		return err
	}
	if err := p.b.Linear(ctx, pointwise1, depthwise1, s.pointwise[0], relu); err != nil {
		return err
	}
	depthwise2, pointwise2 := t.depthwise2.RowRange(0, r3.len()*w3), t.pointwise2.RowRange(0, r3.len()*w3)
	if err := p.b.ConvDepthwise2D(ctx, depthwise2, pointwise1, s.depthwise[1], r3.conv(r2, w2)); err != nil {
		return err
	}
	if err := p.b.Linear(ctx, pointwise2, depthwise2, s.pointwise[1], relu); err != nil {
		return err
	}
	flat := pointwise2.Reshape(r3.len(), w3*c.SubsamplingChannels)
	return p.b.Linear(ctx, p.x.RowRange(tile.first, tile.last), flat, s.out, ml.Epilogue{Scale: s.inputScale})
}
