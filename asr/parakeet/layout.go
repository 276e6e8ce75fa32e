package parakeet

import "github.com/aviary-asr/aviary/asr/ml"

// region is a place in the arena for a matrix.
type region struct{ at, rows, cols int }

func (r region) in(buf ml.Buffer) ml.Tensor { return ml.NewTensor(buf, r.at, r.rows, r.cols) }

// planner hands out places. What is given back by moving top down is used again.
type planner struct{ top, peak int }

// alignment of regions in floats: 256 bytes, what devices want.
const alignment = 64

func (p *planner) take(rows, cols int) region {
	r := region{p.top, rows, cols}
	p.top += (rows*cols + alignment - 1) / alignment * alignment
	p.peak = max(p.peak, p.top)
	return r
}

// layout says where everything lies during a pass over a number of frames. It is computed before the pass, from the shape alone: the
// memory that a pass will take and the memory that it takes come from the same lines.
//
// Only x, the residual stream, lives through the whole pass. The tiles of the subsampling, the buffers of the blocks and those
// of the decoders are needed one after the other and share their place.
type layout struct {
	frames  Frames
	encoded int // encoder frames: T
	tile    int // encoder frames per tile of the subsampling
	rows    int // encoder frames per row block
	floats  int // of the whole arena

	x region // [T, d]

	// Subsampling of one tile; names are of the outputs.
	mel, stem, depthwise1, pointwise1, depthwise2, pointwise2 region

	qkv    region // [T, 3d]: queries, keys, values; then twice [T, d] for the convolution module
	z      region // [rows, d]: normalized input of a module
	hidden region // [rows, ff]
	table  region // [offsets, d] sinusoids
	r      region // [offsets, d] projected, for full attention; local attention keeps its own

	f, embedded, predicted, logits region   // transducer: [T, joint], and single rows
	h, c                           []region // state of the prediction network, per layer
	ctc                            region   // [rows, classes]
}

// newLayout plans a pass over n frames (at least one).
func newLayout(c Config, rowBlock int, n Frames, a Attention) layout {
	d := c.DModel
	l := layout{frames: n, encoded: int(n.Encoded())}
	l.rows = min(rowBlock, l.encoded)
	l.tile = min(max(rowBlock/8, 8), l.encoded)
	var p planner
	l.x = p.take(l.encoded, d)
	shared := p.top

	channels := c.SubsamplingChannels
	w1, w2, w3 := c.melWidths()
	rows3 := l.tile
	rows2 := 2*rows3 + 1
	rows1 := 2*rows2 + 1
	l.mel = p.take(2*rows1+1, c.Mels)
	l.stem = p.take(rows1*w1, channels)
	l.depthwise1 = p.take(rows2*w2, channels)
	l.pointwise1 = p.take(rows2*w2, channels)
	l.depthwise2 = p.take(rows3*w3, channels)
	l.pointwise2 = p.take(rows3*w3, channels)

	p.top = shared
	l.qkv = p.take(l.encoded, 3*d)
	l.z = p.take(l.rows, d)
	l.hidden = p.take(l.rows, c.FFDim)
	_, offsets := offsetsOf(a, l.encoded)
	l.table = p.take(offsets, d)
	if a.IsFull() {
		l.r = p.take(offsets, d)
	}

	p.top = shared
	if c.Kind.HasTransducer() {
		l.f = p.take(l.encoded, c.JointHidden)
		l.embedded = p.take(1, c.PredHidden)
		l.predicted = p.take(1, c.JointHidden)
		l.logits = p.take(1, c.tokens()+len(c.Durations))
		for range c.PredLayers {
			l.h = append(l.h, p.take(1, c.PredHidden))
			l.c = append(l.c, p.take(1, c.PredHidden))
		}
	}
	p.top = shared
	if c.Kind.HasCTC() {
		l.ctc = p.take(l.rows, c.tokens())
	}
	l.floats = p.peak
	return l
}

// Footprint predicts the device memory of a pass without a backend: the weights of a model of shape c in the given format and the buffers
// for n frames with attention a. A session keeps the projected positions of the last window it ran with; kept is that window, or
// Full where there is none.
func Footprint(c Config, info ml.Info, dtype ml.DType, n Frames, a, kept Attention) ml.Memory {
	l := &loader{info: info, dtype: dtype, counting: true}
	newModel(c, l)
	if !a.IsFull() {
		kept = a
	}
	return ml.Memory{
		WeightBytes: l.bytes,
		BufferBytes: 4 * int64(newLayout(c, info.RowBlock, max(n, 1), a).floats+localFloats(c, kept)),
	}
}
