package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// shapes is what the tensors themselves say about a model.
type shapes struct {
	Config
	melRows int // mel bins after the subsampling: ceil(Mels/8)
	extra   int // outputs of the joint head after the tokens and blank
}

// deriveShapes reads the sizes off the tensors that have them, in canonical
// names. It looks only at as many tensors as that takes; asr/parakeet checks
// that all the others are there and fit.
func deriveShapes(ts Tensors) (shapes, error) {
	s := shapes{Config: Config{AttentionLeft: -1, AttentionRight: -1, SubsamplingFactor: 8}}
	d := dims{ts: ts}
	s.deriveEncoder(&d)
	_, transducer := ts.Info(hfEmbedding)
	_, ctc := ts.Info("ctc_head.weight")
	if transducer {
		s.deriveTransducer(&d)
	}
	if ctc {
		head := d.of("ctc_head.weight", 3)
		if transducer && head[0] != s.VocabSize+1 {
			d.fail("tensor ctc_head.weight has %d classes, expected %d as the transducer has", head[0], s.VocabSize+1)
		}
		if head[1] != s.DModel || head[2] != 1 {
			d.fail("tensor ctc_head.weight has shape %v, expected [%d %d 1]", head, head[0], s.DModel)
		}
		s.VocabSize = head[0] - 1
	}
	s.BlankID = s.VocabSize
	switch {
	case transducer && ctc:
		s.Kind = KindHybrid
	case ctc:
		s.Kind = KindCTC
	case !transducer:
		d.fail("neither tensor %s nor ctc_head.weight: a model without a known head", hfEmbedding)
	case s.extra > 0:
		s.Kind = KindTDT
	default:
		s.Kind = KindRNNT
	}
	if d.err == nil && s.VocabSize < 1 {
		d.fail("the heads have %d classes, expected tokens and blank", s.VocabSize+1)
	}
	return s, d.err
}

func (s *shapes) deriveEncoder(d *dims) {
	s.SubsamplingChannels = d.of("encoder.subsampling.layers.0.weight", 4)[0]
	linear := d.of("encoder.subsampling.linear.weight", 2)
	s.DModel = linear[0]
	if s.SubsamplingChannels > 0 {
		s.melRows = linear[1] / s.SubsamplingChannels
	}
	if s.melRows*s.SubsamplingChannels != linear[1] {
		d.fail("tensor encoder.subsampling.linear.weight has %d columns, expected a multiple of the %d channels", linear[1], s.SubsamplingChannels)
	}
	for _, name := range d.ts.Names() {
		if rest, ok := strings.CutPrefix(name, layersPrefix); ok {
			index, _, _ := strings.Cut(rest, ".")
			if n, err := strconv.Atoi(index); err == nil && isIndex(index) {
				s.Layers = max(s.Layers, n+1)
			}
		}
	}
	const first = layersPrefix + "0."
	bias := d.of(first+"self_attn.bias_u", 2)
	s.Heads = bias[0]
	if d.err == nil && bias[0]*bias[1] != s.DModel {
		d.fail("tensor %sself_attn.bias_u has shape %v, expected heads and width with the product %d", first, bias, s.DModel)
	}
	s.FFDim = d.of(first+"feed_forward1.linear1.weight", 2)[0]
	s.ConvKernel = d.of(first+"conv.depthwise_conv.weight", 3)[2]
	_, s.AttentionBias = d.ts.Info(first + "feed_forward1.linear1.bias")
	_, s.ConvBias = d.ts.Info(first + "conv.pointwise_conv1.bias")
}

func (s *shapes) deriveTransducer(d *dims) {
	embedding := d.of(hfEmbedding, 2)
	s.VocabSize, s.PredHidden = embedding[0]-1, embedding[1]
	for _, name := range d.ts.Names() {
		if n, ok := strings.CutPrefix(name, hfLSTM+"weight_ih_l"); ok && isIndex(n) {
			i, _ := strconv.Atoi(n)
			s.PredLayers = max(s.PredLayers, i+1)
		}
	}
	if s.PredLayers == 0 {
		d.fail("tensor %sweight_ih_l0 is missing", hfLSTM)
	}
	head := d.of("joint.head.weight", 2)
	s.JointHidden = head[1]
	if s.extra = head[0] - embedding[0]; s.extra < 0 {
		d.fail("tensor joint.head.weight has %d rows, expected at least the %d tokens and blank of %s", head[0], embedding[0], hfEmbedding)
	}
}

// dims looks shapes up and keeps the first error.
type dims struct {
	ts  Tensors
	err error
}

// of gives the shape of a tensor, or zeros.
func (d *dims) of(name string, rank int) []int {
	info, ok := d.ts.Info(name)
	switch {
	case !ok:
		d.fail("tensor %s is missing", name)
	case len(info.Shape) != rank:
		d.fail("tensor %s has shape %v, expected %d dimensions", name, info.Shape, rank)
	case info.Elements() == 0:
		d.fail("tensor %s has shape %v: no elements", name, info.Shape)
	default:
		return info.Shape
	}
	return make([]int, rank)
}

func (d *dims) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// agree holds a configuration's value, nil where it is absent, against the
// tensors'.
func agree[T comparable](key string, declared *T, derived T) error {
	if declared != nil && *declared != derived {
		return fmt.Errorf("%s is %v, but the tensors say %v", key, *declared, derived)
	}
	return nil
}

// expect refuses a value, nil where it is absent, for which this project has no
// code.
func expect[T comparable](key string, declared *T, supported T) error {
	if declared != nil && *declared != supported {
		return fmt.Errorf("%s is %v, expected %v: other values are not supported", key, *declared, supported)
	}
	return nil
}

// or gives a configuration's value or the default.
func or[T any](declared *T, otherwise T) T {
	if declared != nil {
		return *declared
	}
	return otherwise
}

// finish checks what no single key decides.
func (s *shapes) finish() (Config, error) {
	c := s.Config
	if want := (c.Mels + 7) / 8; want != s.melRows {
		return c, fmt.Errorf("the front end has %d mel bins, but tensor encoder.subsampling.linear.weight is for %d to %d",
			c.Mels, 8*s.melRows-7, 8*s.melRows)
	}
	if c.SampleRate <= 0 || c.Hop <= 0 || c.Window <= 0 || c.NFFT < c.Window {
		return c, fmt.Errorf("front end of %d Hz with hop %d, window %d and FFT %d samples makes no sense", c.SampleRate, c.Hop, c.Window, c.NFFT)
	}
	if !c.Kind.HasTransducer() {
		c.Durations, c.MaxSymbols = nil, 0
	} else if err := checkDurations(c.Durations, s.extra); err != nil {
		return c, err
	} else if c.MaxSymbols <= 0 {
		return c, fmt.Errorf("at most %d symbols per frame, expected a positive number", c.MaxSymbols)
	}
	return c, nil
}

func checkDurations(durations []int, outputs int) error {
	if len(durations) != outputs {
		return fmt.Errorf("durations %v, but tensor joint.head.weight has outputs for %d", durations, outputs)
	}
	for _, d := range durations {
		if d < 0 {
			return fmt.Errorf("durations %v: expected none below 0", durations)
		}
	}
	return nil
}

// attentionWindow reads [left, right]; both -1 is full attention.
func (c *Config) attentionWindow(key string, context []int, mustBeLocal bool) error {
	if len(context) != 2 {
		return fmt.Errorf("%s is %v, expected [left, right]", key, context)
	}
	l, r := context[0], context[1]
	full := l == -1 && r == -1
	if !full && (l < 0 || r < 0) || mustBeLocal && (full || max(l, r) == 0) {
		return fmt.Errorf("%s is %v, expected two numbers of encoder frames", key, context)
	}
	c.AttentionLeft, c.AttentionRight = l, r
	return nil
}

// settlePieces cuts the vocabulary to its tokens: Hugging Face's has blank, too.
func settlePieces(pieces []Piece, c Config) ([]Piece, error) {
	if len(pieces) < c.VocabSize {
		return nil, fmt.Errorf("%d pieces, but the tensors are for %d", len(pieces), c.VocabSize)
	}
	if len(pieces) > c.VocabSize+1 {
		return nil, fmt.Errorf("%d pieces, but the tensors are for %d and blank", len(pieces), c.VocabSize)
	}
	return pieces[:c.VocabSize:c.VocabSize], nil
}
