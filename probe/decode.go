package probe

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/resample"
)

// Decode gives the file's audio as mono PCM at 16 kHz, see aviary.Prober. n samples per channel become ceil(n x 16,000 / rate).
func (p *Prober) Decode(ctx context.Context, r io.ReaderAt, size int64, limit time.Duration) (aviary.PCM, error) {
	const op = "decode"
	t, err := p.open(ctx, r, size)
	if err != nil {
		return nil, report(op, err)
	}
	defer t.close()
	a := t.about()
	err = aviary.CheckDuration(op, durationOf(a.held, a.rate), limit)
	if a.held == unknown {
		err = a.claimTooLong(op, limit)
	}
	if err != nil {
		return nil, err
	}
	most := framesWithin(limit, a.rate)
	expected, err := a.foresee(ctx, t, size, most)
	if err != nil {
		return nil, report(op, err)
	}
	if expected > most {
		return nil, tooLong(op, durationOf(expected, a.rate), limit)
	}
	d, err := newDecoding(t, 0)
	if err != nil {
		return nil, report(op, err)
	}
	sink := newPCMSink(d.resampler.Length(expected))
	if err := d.run(ctx, most, sink.add); err != nil {
		return nil, report(op, err)
	}
	if _, err := d.verdict(op, limit); err != nil {
		return nil, report(op, err)
	}
	return sink.pcm, nil
}

// Counting ahead takes some 10 ms for each megabyte. It saves decoding small files that hold more than they say, and it makes room for
// the result at once. A large file that says how long it is, and has the bytes for it, is taken at its word until its end shows.
const (
	countAheadBytes  = 4 << 20
	likelyCompaction = 16 // samples of the result for each byte of the file; speech in FLAC has 1 to 2
)

// foresee says how many frames will be decoded, and refuses what need not be decoded to be refused.
func (a about) foresee(ctx context.Context, t track, size, most int64) (int64, error) {
	held := a.held
	if held == unknown {
		if a.decodesToCount {
			return max(a.claimed, 0), nil
		}
		if a.claimed != unknown && size > countAheadBytes && a.claimed/likelyCompaction*aviary.SampleRate/int64(a.rate) <= size {
			return a.claimed, nil
		}
		var err error
		if held, err = t.count(ctx, most); err != nil || held > most {
			return held, err
		}
	}
	_, err := a.duration(held, 0)
	return held, err
}

// blockFrames is how many sample frames are decoded at once.
const blockFrames = 4096

// decoding is a track on its way to mono at 16 kHz, block by block.
type decoding struct {
	track     track
	meta      about
	mixer     mixer
	resampler *resample.Resampler
	frames    int64 // decoded so far
}

// newDecoding starts at the track's first frame. pick is the channel to take, from 1; 0 mixes all.
func newDecoding(t track, pick int) (*decoding, error) {
	a := t.about()
	resampler, err := resample.New(a.rate, aviary.SampleRate)
	if err != nil {
		return nil, broken("A sample rate of %d Hz cannot be decoded.", a.rate)
	}
	return &decoding{track: t, meta: a, mixer: mixer{channels: a.channels, pick: pick}, resampler: resampler}, nil
}

// run decodes until the file ends or holds more than most frames. Each block of samples is handed to sink, which may not keep it.
func (d *decoding) run(ctx context.Context, most int64, sink func([]float32) error) error {
	interleaved := make([]float32, blockFrames*d.meta.channels)
	mono := make([]float32, blockFrames)
	var out aviary.PCM
	for d.frames <= most {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := d.track.read(ctx, interleaved)
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return err
		}
		out = out[:0]
		if last {
			out = d.resampler.Flush(out)
		} else {
			d.frames += int64(n)
			d.mixer.mix(mono[:n], interleaved[:n*d.meta.channels])
			out = d.resampler.Append(out, mono[:n])
		}
		if err := sink(out); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
	return nil
}

// verdict is the duration of what run decoded, unless the file is to be refused for it.
func (d *decoding) verdict(op string, limit time.Duration) (time.Duration, error) {
	held := durationOf(d.frames, d.meta.rate)
	if d.frames > framesWithin(limit, d.meta.rate) {
		return held, tooLong(op, held, limit)
	}
	if _, err := d.meta.duration(d.frames, limit); err != nil {
		return held, err
	}
	if all := d.frames * int64(d.meta.channels); d.mixer.bad > all/2 {
		return held, broken("%d of %d samples are not numbers.", d.mixer.bad, all)
	}
	return held, nil
}

// pcmSink gathers samples.
type pcmSink struct {
	expected int64
	pcm      aviary.PCM
}

// newPCMSink makes room for the expected samples.
func newPCMSink(expected int64) *pcmSink {
	return &pcmSink{expected, make(aviary.PCM, 0, expected)}
}

func (s *pcmSink) add(samples []float32) error {
	s.grow(int64(len(samples)))
	s.pcm = append(s.pcm, samples...)
	return nil
}

// grow makes room for n more samples: at least half as much again, but no more than is expected while that suffices.
func (s *pcmSink) grow(n int64) {
	need := int64(len(s.pcm)) + n
	if need <= int64(cap(s.pcm)) {
		return
	}
	room := max(need, int64(cap(s.pcm))*3/2, 1<<20)
	if s.expected >= need {
		room = min(room, s.expected)
	}
	larger := make(aviary.PCM, len(s.pcm), room)
	copy(larger, s.pcm)
	s.pcm = larger
}
