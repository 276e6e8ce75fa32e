package parakeet

import (
	"context"
	"fmt"
	"slices"
)

// Encode runs the encoder over log-mel frames and leaves its output, [T, d] with T = in.Frames.Encoded(), on the device for the decoders.
// What the attention needs, positions and window, is settled here, once; the weights are the same for every a.
func (s *Session) Encode(ctx context.Context, in LogMel, a Attention) (EncoderFrames, error) {
	c := s.model.Config
	if in.Frames < 1 || len(in.Values) != int(in.Frames)*c.Mels {
		return 0, fmt.Errorf("parakeet: %d values for %d frames of %d mel bins", len(in.Values), in.Frames, c.Mels)
	}
	if err := s.begin(in.Frames, a); err != nil {
		return 0, err
	}
	if s.Hooks.Dump != nil {
		s.Hooks.Dump("enc.mel.in", int(in.Frames), c.Mels, slices.Clone(in.Values))
	}
	if err := s.subsample(ctx, in); err != nil {
		return 0, fmt.Errorf("parakeet: subsampling: %w", err)
	}
	p := &s.pass
	if err := s.preparePositions(ctx, p); err != nil {
		return 0, fmt.Errorf("parakeet: positions: %w", err)
	}
	for i := range s.model.blocks {
		r, first, err := s.positions(ctx, p, i)
		if err == nil {
			err = s.model.blocks[i].forward(ctx, c, p, r, first)
		}
		if err == nil {
			err = s.dump(ctx, p.x, "enc.block.%d.out", i)
		}
		if err != nil {
			return 0, fmt.Errorf("parakeet: block %d: %w", i, err)
		}
		s.progress(float64(i+1) / float64(len(s.model.blocks)))
	}
	if err := s.dump(ctx, p.x, "enc.final"); err != nil {
		return 0, err
	}
	s.encoded = EncoderFrames(p.x.Rows)
	return s.encoded, nil
}

// subsample goes through the audio in tiles.
func (s *Session) subsample(ctx context.Context, in LogMel) error {
	p, l := &s.pass, &s.layout
	for t := 0; t < l.encoded; t += l.tile {
		tile := rows{t, min(t+l.tile, l.encoded)}
		if err := s.model.subsampling.forward(ctx, s.model.Config, p, in, tile); err != nil {
			return err
		}
	}
	if s.Hooks.Dump == nil {
		return nil
	}
	v := make([]float32, p.x.Rows*p.x.Cols)
	if err := p.b.Read(ctx, v, p.x); err != nil {
		return err
	}
	for i := range v {
		v[i] /= s.model.subsampling.inputScale
	}
	s.Hooks.Dump("enc.pre_encode.out", p.x.Rows, p.x.Cols, v)
	return nil
}
