package parakeet

import (
	"context"

	"github.com/aviary-asr/aviary/asr/ml"
)

// predictionNetwork is the transducer's memory of what it has emitted: an embedding, LSTM layers, and a projection into the joint network.
type predictionNetwork struct {
	embedding  ml.Weight // [pieces + blank, hidden]
	layers     []ml.LSTM
	projection ml.Linear
}

func loadPredictionNetwork(c Config, l *loader) predictionNetwork {
	h := c.PredHidden
	n := predictionNetwork{}
	l.room(c.tokens() * h)
	const embedding = "decoder.embedding.weight"
	n.embedding = l.matrix(embedding, c.tokens(), h, ml.UseRows, func() []float32 { return l.read(embedding, c.tokens()*h) })
	for i := range c.PredLayers {
		n.layers = append(n.layers, loadLSTM(l, i, h))
	}
	n.projection = l.linear("decoder.decoder_projector", c.JointHidden, h, true, ml.UseLinear)
	return n
}

// loadLSTM loads layer i and adds its two bias vectors: the gates only ever see their sum.
func loadLSTM(l *loader, i, h int) ml.LSTM {
	matrix := func(part string) ml.Weight {
		name := lstmName(part, i)
		l.room(4 * h * h)
		return l.matrix(name, 4*h, h, ml.UseLinear, func() []float32 { return l.read(name, 4*h*h) })
	}
	w := ml.LSTM{WX: matrix("weight_ih"), WH: matrix("weight_hh")}
	w.B = l.param(lstmName("bias_ih", i), func() []float32 {
		l.room(8 * h)
		a, b := l.read(lstmName("bias_ih", i), 4*h), l.read(lstmName("bias_hh", i), 4*h)
		for k := range b {
			a[k] += b[k]
		}
		return a
	}, 4*h)
	return w
}

// predictionState is the network's state for one utterance.
type predictionState struct {
	h, c      []ml.Tensor // per layer, [1, hidden]
	embedded  ml.Tensor   // [1, hidden]
	projected ml.Tensor   // [1, joint]: what the joint network adds to a frame
	ids       [1]int
}

// start zeroes the state and feeds the blank, the start symbol. Its output is not zero: the biases of the LSTM act.
func (n *predictionNetwork) start(ctx context.Context, b ml.Backend, s *predictionState, blank int) error {
	zero := make([]float32, s.embedded.Cols)
	for i := range s.h {
		if err := b.Write(ctx, s.h[i], zero); err != nil {
			return err
		}
		if err := b.Write(ctx, s.c[i], zero); err != nil {
			return err
		}
	}
	return n.advance(ctx, b, s, blank)
}

// advance feeds one token.
func (n *predictionNetwork) advance(ctx context.Context, b ml.Backend, s *predictionState, token int) error {
	s.ids[0] = token
	if err := b.Embed(ctx, s.embedded, n.embedding, s.ids[:]); err != nil {
		return err
	}
	x := s.embedded
	for i := range n.layers {
		if err := b.LSTM(ctx, s.h[i], s.c[i], x, n.layers[i]); err != nil {
			return err
		}
		x = s.h[i]
	}
	return b.Linear(ctx, s.projected, x, n.projection, ml.Epilogue{})
}
