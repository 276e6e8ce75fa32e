// Package probe finds out what an upload is and decodes it to mono 16 kHz PCM. It implements aviary.Prober for bytes from strangers: a file
// is known by its content, never by its name, and no number in it is believed that the rest of it does not bear out.
//
// What may be relied on:
//
//   - The duration is that of what Decode gives. It is counted from the bytes and frames that are there, in whole samples. A header that
//     claims something else by more than 50 ms makes the file broken; up to that, the larger of both is reported.
//   - Probe and Decode refuse the same files for the same reasons, but for what only samples show (more than half of them not finite).
//   - Decode stops at its limit whatever the header says. The cost of both is linear in the bytes of the file or, for Decode, in the
//     samples up to the limit. Memory: below 512 kB for Probe of any file; for Decode its result, below 8 MB besides, and garbage of blocks. Room
//     for a result is made by what was counted, or by a claim that is within the limit and likely for the file's size.
//   - All channels are mixed to one by their mean. Samples that are not finite become 0, others are kept within ±65,536.
//   - Failures of the reader underneath are returned as such (internal_error), not as faults of the file.
//
// A format is a file of this package and a line in formats. The package runs no other program, opens no other file, and never
// decompresses an archive.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/resample"
)

// Config configures a Prober.
type Config struct {
	// MaxDuration is the guard's limit, and bounds what Probe does: a file that is longer is reported with a duration beyond MaxDuration, not
	// necessarily with all of its own, since counting stops there. Zero counts everything. Probe does not refuse by it: the caller does.
	MaxDuration time.Duration
}

// Prober implements aviary.Prober. It has no state: all methods may be called at the same time.
type Prober struct {
	cfg Config
}

var _ aviary.Prober = (*Prober)(nil)

// New makes a Prober.
func New(cfg Config) *Prober { return &Prober{cfg} }

// slack is how far a header's claim may be from what is there: less than a word, more than what writers get wrong who count a header or
// a pad byte as audio.
const slack = 50 * time.Millisecond

// Probe says what the file is and how long, see aviary.Prober.
func (p *Prober) Probe(ctx context.Context, r io.ReaderAt, size int64) (aviary.Audio, error) {
	const op = "probe"
	t, err := open(ctx, r, size)
	if err != nil {
		return aviary.Audio{}, report(op, err)
	}
	a := t.about()
	audio := aviary.Audio{Container: a.container, Codec: a.codec, SampleRate: a.rate, Channels: a.channels, Bytes: size}
	most := framesWithin(p.cfg.MaxDuration, a.rate)
	if a.held == unknown && a.claimed > most { // too long by its own account: no need to count
		audio.Duration = durationOf(a.claimed, a.rate)
		return audio, nil
	}
	held, err := t.count(ctx, most)
	if err != nil {
		return aviary.Audio{}, report(op, err)
	}
	if audio.Duration, err = a.duration(held, p.cfg.MaxDuration); err != nil {
		return aviary.Audio{}, report(op, err)
	}
	return audio, nil
}

// duration weighs what is there against what the header claims. Beyond limit (zero: none) what is there decides alone.
func (a about) duration(held int64, limit time.Duration) (time.Duration, error) {
	d := durationOf(held, a.rate)
	switch {
	case limit > 0 && d > limit:
		return d, nil
	case held == 0:
		return 0, broken("The file holds no audio.")
	case a.claimed == unknown:
		return d, nil
	}
	claim := durationOf(a.claimed, a.rate)
	switch {
	case claim-d > slack:
		return 0, broken("The header claims %.3f s of audio, but the file holds %.3f s: it is cut off.", claim.Seconds(), d.Seconds())
	case d-claim > slack:
		return 0, broken("The header claims %.3f s of audio, but the file holds %.3f s.", claim.Seconds(), d.Seconds())
	}
	return max(d, claim), nil
}

// Decode gives the file's audio as mono PCM at 16 kHz, see aviary.Prober. n samples per channel become ceil(n x 16,000 / rate).
func (p *Prober) Decode(ctx context.Context, r io.ReaderAt, size int64, limit time.Duration) (aviary.PCM, error) {
	const op = "decode"
	t, err := open(ctx, r, size)
	if err != nil {
		return nil, report(op, err)
	}
	a := t.about()
	account := a.held
	if account == unknown {
		account = a.claimed
	}
	if err := aviary.CheckDuration(op, durationOf(account, a.rate), limit); err != nil {
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
	d, err := newDecoding(a.rate, expected)
	if err != nil {
		return nil, report(op, err)
	}
	if err := d.run(ctx, t, most); err != nil {
		return nil, report(op, err)
	}
	if d.frames > most {
		return nil, tooLong(op, durationOf(d.frames, a.rate), limit)
	}
	if _, err := a.duration(d.frames, limit); err != nil {
		return nil, report(op, err)
	}
	if all := d.frames * int64(a.channels); d.bad > all/2 {
		return nil, report(op, broken("%d of %d samples are not numbers.", d.bad, all))
	}
	return d.pcm, nil
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

// tooLong is the guard's refusal of a file that was counted up to so far and not to its end.
func tooLong(op string, soFar, limit time.Duration) error {
	err := aviary.CheckDuration(op, soFar, limit)
	var e *aviary.Error
	if errors.As(err, &e) {
		e.Detail = fmt.Sprintf("The audio lasts longer than %.3f s, and no more is accepted.", limit.Seconds())
	}
	return err
}

// blockFrames is how many sample frames are decoded at once.
const blockFrames = 4096

// decoding is one file on its way to PCM.
type decoding struct {
	resampler *resample.Resampler
	expected  int64 // outputs in all, and a little more
	pcm       aviary.PCM
	frames    int64 // decoded so far
	bad       int64 // samples that were not finite, in all channels
}

// newDecoding makes room for the expected frames.
func newDecoding(rate int, expected int64) (*decoding, error) {
	resampler, err := resample.New(rate, aviary.SampleRate)
	if err != nil {
		return nil, broken("A sample rate of %d Hz cannot be decoded.", rate)
	}
	d := &decoding{resampler: resampler, expected: resampler.Length(expected) + resampler.Length(blockFrames) + 1}
	d.pcm = make(aviary.PCM, 0, d.expected)
	return d, nil
}

// run decodes until the file ends or holds more than most frames.
func (d *decoding) run(ctx context.Context, t track, most int64) error {
	block := make([]float32, blockFrames)
	for d.frames <= most {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, bad, err := t.read(ctx, block)
		d.frames += int64(n)
		d.bad += int64(bad)
		d.grow(d.resampler.Length(int64(n)) + 1)
		d.pcm = d.resampler.Append(d.pcm, block[:n])
		if errors.Is(err, io.EOF) {
			d.grow(d.resampler.Length(d.frames) - int64(len(d.pcm)))
			d.pcm = d.resampler.Flush(d.pcm)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// grow makes room for n more samples: at least half as much again, but no more than is expected while that suffices.
func (d *decoding) grow(n int64) {
	need := int64(len(d.pcm)) + n
	if need <= int64(cap(d.pcm)) {
		return
	}
	room := max(need, int64(cap(d.pcm))*3/2, 1<<20)
	if d.expected >= need {
		room = min(room, d.expected)
	}
	larger := make(aviary.PCM, len(d.pcm), room)
	copy(larger, d.pcm)
	d.pcm = larger
}
