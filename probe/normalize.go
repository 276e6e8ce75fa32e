package probe

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/flac"
)

// Normalize implements aviary.Prober: it writes mono FLAC at 16 kHz, with the total and the checksum of its samples in the header. Samples have
// 16 bits, or 24 where the upload's have more than 16: for a mono upload of 16 bits at 16 kHz nothing changes.
//
// Floats at another scale than ±1 are scaled by a power of two; what is beyond full scale after that is clipped, as players do. What a user
// should know of it stands in the warnings.
//
// The upload is counted before it is decoded, unless counting takes decoding it, and decoding stops at the limit whatever was counted. If the
// decoded length differs from the counted one by more than 1 % and 0.25 s (and the codec's padding), the file is broken; by more than 50 ms,
// there is a warning.
func (p *Prober) Normalize(ctx context.Context, r io.ReaderAt, size int64, n aviary.Normalizing, w aviary.RecordingWriter) (aviary.Audio, error) {
	const op = "normalize"
	t, err := p.open(ctx, r, size)
	if err != nil {
		return aviary.Audio{}, report(op, err)
	}
	defer t.close()
	a := t.about()
	if n.Channel > a.channels {
		return aviary.Audio{}, aviary.Errorf(aviary.CodeOptionInvalid, op, "channel: there is no channel %d, the recording has %d.", n.Channel, a.channels)
	}
	counted, err := a.admit(ctx, t, n.Limit)
	if err != nil {
		return aviary.Audio{}, report(op, err)
	}
	shift := 0
	if a.anyScale {
		if shift, err = p.overshoot(ctx, r, size, n); err != nil {
			return aviary.Audio{}, report(op, err)
		}
	}
	rec, err := newRecording(w, a.bits, shift)
	if err != nil {
		return aviary.Audio{}, report(op, err)
	}
	d, err := newDecoding(t, n.Channel)
	if err != nil {
		return aviary.Audio{}, report(op, err)
	}
	if err := d.run(ctx, framesWithin(n.Limit, a.rate), rec.add); err != nil {
		return aviary.Audio{}, report(op, err)
	}
	audio := t.about().audio(size)
	if audio.Duration, err = d.verdict(op, n.Limit); err != nil {
		return aviary.Audio{}, report(op, err)
	}
	deviation, err := a.deviation(counted, d.frames)
	if err != nil {
		return aviary.Audio{}, report(op, err)
	}
	audio.Warnings = append(append(audio.Warnings, deviation...), d.mixer.warnings()...)
	audio.Warnings = append(audio.Warnings, rec.warnings()...)
	return audio, report(op, rec.close())
}

// admit refuses what need not be decoded to be refused, and says how many frames to expect; unknown if only decoding tells.
func (a about) admit(ctx context.Context, t track, limit time.Duration) (int64, error) {
	const op = "normalize"
	if err := a.claimTooLong(op, limit); err != nil {
		return 0, err
	}
	if a.decodesToCount {
		return unknown, nil
	}
	most := framesWithin(limit, a.rate)
	held, err := t.count(ctx, most)
	if err != nil {
		return 0, err
	}
	if held > most {
		return 0, tooLong(op, durationOf(held, a.rate), limit)
	}
	d, err := a.duration(held, limit)
	if err != nil {
		return 0, err
	}
	return held, aviary.CheckDuration(op, d, limit)
}

// deviation weighs the decoded length against the counted one.
func (a about) deviation(counted, decoded int64) (warnings []string, err error) {
	if counted == unknown {
		return nil, nil
	}
	c, d := durationOf(counted, a.rate), durationOf(decoded, a.rate)
	differ, padding := (c - d).Abs(), durationOf(a.loose, a.rate)
	switch {
	case differ > max(c/100, 250*time.Millisecond)+padding:
		return nil, broken("The file holds %.3f s of audio by its frames, but decodes to %.3f s.", c.Seconds(), d.Seconds())
	case differ > slack+padding:
		return []string{fmt.Sprintf("The file holds %.3f s of audio by its frames, but decodes to %.3f s.", c.Seconds(), d.Seconds())}, nil
	}
	return nil, nil
}

// Beyond full scale.
const (
	mostClipped = 1000 // one sample in so many may be clipped without a warning, or without scaling all
	mostShift   = 17   // maxSample is 2^16: half as much is always enough
)

// overshoot says by how many bits the samples must be shifted down so that hardly one is beyond full scale. It decodes the file.
func (p *Prober) overshoot(ctx context.Context, r io.ReaderAt, size int64, n aviary.Normalizing) (int, error) {
	t, err := p.open(ctx, r, size)
	if err != nil {
		return 0, err
	}
	defer t.close()
	d, err := newDecoding(t, n.Channel)
	if err != nil {
		return 0, err
	}
	var beyond [mostShift]int64 // samples beyond 2^i
	total := int64(0)
	err = d.run(ctx, framesWithin(n.Limit, t.about().rate), func(samples []float32) error {
		total += int64(len(samples))
		for _, v := range samples {
			for i := 0; i < mostShift && math.Abs(float64(v)) > math.Ldexp(1, i); i++ {
				beyond[i]++
			}
		}
		return nil
	})
	for i, count := range beyond {
		if count <= total/mostClipped {
			return i, err
		}
	}
	return mostShift, err
}

// recording writes samples as FLAC.
type recording struct {
	w       aviary.RecordingWriter
	encoder *flac.Encoder
	shift   int
	full    float64 // full scale, as an integer
	total   int64
	clipped int64
	buf     []int32
}

func newRecording(w aviary.RecordingWriter, bits, shift int) (*recording, error) {
	width := 16
	if bits > 16 {
		width = 24
	}
	e, err := flac.NewEncoder(w, aviary.SampleRate, width)
	if err != nil {
		return nil, err
	}
	return &recording{w: w, encoder: e, shift: shift, full: math.Ldexp(1, width-1)}, nil
}

func (r *recording) add(samples []float32) error {
	r.buf = r.buf[:0]
	scale := math.Ldexp(r.full, -r.shift)
	for _, v := range samples {
		x := math.RoundToEven(float64(v) * scale)
		if x > r.full || x < -r.full { // 1.0 itself is one too many, and is not worth a warning
			r.clipped++
		}
		r.buf = append(r.buf, int32(min(max(x, -r.full), r.full-1)))
	}
	r.total += int64(len(samples))
	return r.encoder.Write(r.buf)
}

func (r *recording) close() error {
	info, err := r.encoder.Close()
	if err != nil {
		return err
	}
	_, err = r.w.WriteAt(info[:], flac.StreamInfoOffset)
	return err
}

func (r *recording) warnings() []string {
	var list []string
	if r.shift > 0 {
		list = append(list, fmt.Sprintf("Samples lie beyond full scale: all were divided by %d.", 1<<r.shift))
	}
	if r.clipped > r.total/mostClipped {
		list = append(list, fmt.Sprintf("%d of %d samples lie beyond full scale and were clipped.", r.clipped, r.total))
	}
	return list
}

func (m *mixer) warnings() []string {
	if m.bad == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d samples are not numbers: they count as silence.", m.bad)}
}
