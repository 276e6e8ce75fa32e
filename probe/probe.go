// Package probe finds out what an upload is and decodes it to mono 16 kHz PCM. It implements aviary.Prober for bytes from strangers: a file
// is known by its content, never by its name, and no number in it is believed that the rest of it does not bear out.
//
// What may be relied on:
//
//   - The duration is that of what Decode gives. It is counted from the bytes and frames that are there, in whole samples. A header that
//     claims something else by more than 50 ms (and the padding of the codec) makes the file broken; a claim beyond the limit by more than
//     that is enough to call it too long. Up to that, what is there decides.
//   - Probe, Decode and Normalize refuse the same files for the same reasons, but for what only samples show (damage within frames, more than
//     half of the samples not finite).
//   - Decode stops at its limit whatever the header says. The cost of both is linear in the bytes of the file or, for Decode, in the
//     samples up to the limit. Memory: below 512 kB for Probe of any file; for Decode its result, below 8 MB besides, and garbage of blocks. Room
//     for a result is made by what was counted, or by a claim that is within the limit and likely for the file's size.
//   - All channels are mixed to one by their mean, or one is taken. Samples that are not finite become 0, others are kept within ±65,536.
//   - Failures of the reader underneath are returned as such (internal_error), not as faults of the file.
//
// A format is a file of this package and a line in formats. The package runs no other program than the ffmpeg that it is given (see package ffmpeg),
// opens no other file, and never decompresses an archive.
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// Config configures a Prober.
type Config struct {
	// MaxDuration is the guard's limit, and bounds what Probe does: a file that is longer is reported with a duration beyond MaxDuration, not
	// necessarily with all of its own, since counting stops there. Zero counts everything. Probe does not refuse by it: the caller does.
	MaxDuration time.Duration
	// FFmpeg decodes the formats that are not decoded here; nil: they are refused.
	FFmpeg *ffmpeg.Command
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

// Report is what Inspect found.
type Report struct {
	aviary.Audio               // Duration is that of what is there
	Claimed      time.Duration // by the header; meaningless unless HasClaim
	HasClaim     bool
}

// Inspect says what the file is, how long, and how long its header claims it is. The report is filled as far as it went also when the file
// is refused.
func (p *Prober) Inspect(ctx context.Context, r io.ReaderAt, size int64) (Report, error) {
	const op = "probe"
	t, err := p.open(ctx, r, size)
	if err != nil {
		return Report{}, report(op, err)
	}
	defer t.close()
	a := t.about()
	rep := Report{Audio: a.audio(size)}
	if a.claimed != unknown {
		rep.Claimed, rep.HasClaim = durationOf(a.claimed, a.rate), true
	}
	most := framesWithin(p.cfg.MaxDuration, a.rate)
	if a.held == unknown && a.claimTooLong("", p.cfg.MaxDuration) != nil { // by its own account: no need to count
		rep.Duration = rep.Claimed
		return rep, nil
	}
	held, err := t.count(ctx, most)
	if err != nil {
		return rep, report(op, err)
	}
	rep.Duration, rep.Warnings = durationOf(held, a.rate), t.about().warnings
	d, err := a.duration(held, p.cfg.MaxDuration)
	if err != nil {
		return rep, report(op, err)
	}
	rep.Duration = d
	return rep, nil
}

// Probe says what the file is and how long.
func (p *Prober) Probe(ctx context.Context, r io.ReaderAt, size int64) (aviary.Audio, error) {
	rep, err := p.Inspect(ctx, r, size)
	if err != nil {
		return aviary.Audio{}, err
	}
	return rep.Audio, nil
}

func (a about) audio(size int64) aviary.Audio {
	return aviary.Audio{Container: a.container, Codec: a.codec, SampleRate: a.rate, Channels: a.channels, Bytes: size, Warnings: a.warnings}
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
	claim, slack := durationOf(a.claimed, a.rate), slack+durationOf(a.loose, a.rate)
	switch {
	case claim-d > slack:
		return 0, broken("The header claims %.3f s of audio, but the file holds %.3f s: it is cut off.", claim.Seconds(), d.Seconds())
	case d-claim > slack:
		return 0, broken("The header claims %.3f s of audio, but the file holds %.3f s.", claim.Seconds(), d.Seconds())
	}
	return d, nil // within the slack the claim is a matter of rounding and padding, and must not refuse what just fits
}

// claimTooLong is the guard's refusal of a claim that is beyond it by more than claims may be off. Nearer than that, what is there decides.
func (a about) claimTooLong(op string, limit time.Duration) error {
	claim := durationOf(a.claimed, a.rate)
	if claim-slack-durationOf(a.loose, a.rate) <= limit {
		return nil
	}
	return aviary.CheckDuration(op, claim, limit)
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
