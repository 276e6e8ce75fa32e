package parakeet

import (
	"context"
	"errors"
	"fmt"

	"github.com/aviary-asr/aviary/asr/ml"
)

// errNothingEncoded is returned by the decoders before a pass.
var errNothingEncoded = errors.New("parakeet: nothing is encoded")

// DecodeTransducer emits the tokens of the last pass greedily, in the order of time.
//
// At each frame the joint network chooses a token and a duration, independently. Blank moves on by the duration, at least by one frame, and
// leaves the prediction network as it was. A piece is emitted and fed to the prediction network, and the frame moves on by the
// duration; after MaxSymbols pieces in a row on one frame it moves on by one. An RNN-T is the same with all durations zero.
func (s *Session) DecodeTransducer(ctx context.Context) ([]Token, error) {
	if s.encoded == 0 {
		return nil, errNothingEncoded
	}
	if !s.model.Config.Kind.HasTransducer() {
		return nil, fmt.Errorf("parakeet: a model of kind %q has no transducer", s.model.Config.Kind)
	}
	tokens, err := s.transduce(ctx)
	if err != nil {
		return nil, fmt.Errorf("parakeet: decode: %w", err)
	}
	return tokens, nil
}

func (s *Session) transduce(ctx context.Context) ([]Token, error) {
	m, b, c := s.model, s.model.backend, s.model.Config
	f, logits := s.layout.f.in(s.buf), s.layout.logits.in(s.buf)
	if err := b.Linear(ctx, f, s.pass.x, m.projection, ml.Epilogue{}); err != nil {
		return nil, err
	}
	state := s.predictionState()
	if err := m.prediction.start(ctx, b, state, c.BlankID); err != nil {
		return nil, err
	}
	if err := s.dumpPrediction(ctx, state, 0); err != nil {
		return nil, err
	}
	var (
		tokens  []Token
		choice  [1]ml.Choice
		symbols int // emitted at frame t in a row
	)
	for t, n := 0, 0; t < f.Rows; n++ {
		err := b.Joint(ctx, logits, f.RowRange(t, t+1), state.projected, m.joint.head, c.tokens(), choice[:])
		if err == nil {
			err = s.dump(ctx, logits, "dec.joint.%d", n)
		}
		if err != nil {
			return nil, err
		}
		token, duration := choice[0].Token, c.duration(choice[0].Duration)
		if token == c.BlankID {
			t += max(duration, 1)
			symbols = 0
			continue
		}
		tokens = append(tokens, Token{ID: token, Frame: EncoderFrames(t), Duration: c.tokenDuration(duration)})
		if err := m.prediction.advance(ctx, b, state, token); err != nil {
			return nil, err
		}
		if err := s.dumpPrediction(ctx, state, len(tokens)); err != nil {
			return nil, err
		}
		symbols++
		switch {
		case duration > 0:
			t += duration
			symbols = 0
		case symbols >= c.MaxSymbols:
			t++
			symbols = 0
		}
	}
	return tokens, nil
}

// duration is the value of the i-th duration logit.
func (c Config) duration(i int) int {
	if len(c.Durations) == 0 {
		return 0
	}
	return c.Durations[i]
}

// tokenDuration is what a token is said to last: an RNN-T knows nothing, and a frame is taken.
func (c Config) tokenDuration(d int) EncoderFrames {
	if len(c.Durations) == 0 {
		return 1
	}
	return EncoderFrames(d)
}

func (s *Session) predictionState() *predictionState {
	l := &s.layout
	state := &predictionState{embedded: l.embedded.in(s.buf), projected: l.predicted.in(s.buf)}
	for i := range l.h {
		state.h = append(state.h, l.h[i].in(s.buf))
		state.c = append(state.c, l.c[i].in(s.buf))
	}
	return state
}

func (s *Session) dumpPrediction(ctx context.Context, state *predictionState, n int) error {
	return s.dump(ctx, state.h[len(state.h)-1], "dec.pred.%d", n)
}
