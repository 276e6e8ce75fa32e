// Package resample changes the sample rate of mono audio: a band-limited, streaming, linear-phase conversion between any two rates from 4 to
// 384 kHz. It knows nothing of files and formats, and keeps no more than a few thousand samples of state.
//
// It is a polyphase windowed-sinc interpolator after Crochiere and Rabiner, "Multirate Digital Signal Processing" (1983), and Smith,
// "Digital Audio Resampling" (https://ccrma.stanford.edu/~jos/resample/). For input and output rate with the lower Nyquist frequency N:
//
//   - the pass band, up to 0.9 N, is flat within 0.1 dB; at and above N everything is at least 80 dB down, images and aliases too;
//   - output k is the input's value at the time k / output rate: there is no delay, and silence is assumed before the start and after the end;
//   - n inputs give exactly ceil(n x output rate / input rate) outputs: one for each output instant before the end of the last input;
//   - the outputs do not depend on how the input was split into blocks, bit for bit; nothing is allocated per block;
//   - equal rates copy the input.
//
// An input at four times the output rate or more is first halved as often as that holds. Thereby the filter of the last stage has at most 8 x 58
// taps whatever the rate. Where the rates reduce to a ratio of small numbers, the filter is tabulated for each phase that occurs; otherwise, it is
// tabulated for 512 phases and interpolated between them, within the same limits. A table has at most 1.2 MB (TestTablesAreBounded).
package resample

import (
	"fmt"
	"math"
)

// The rates that New accepts, in Hz.
const (
	MinRate = 4000
	MaxRate = 384000
)

const (
	chunk     = 1024 // inputs that pass through the stages at once
	maxPhases = 640  // 16 kHz from 11,025 Hz, the finest of the usual ratios
	gridSteps = 512  // phases of an interpolated table
)

// Resampler converts one stream. It is not safe for concurrent use.
type Resampler struct {
	from, to int
	halvers  []*halver
	scratch  [2][]float32 // outputs of the halvers

	taps   int       // of the filter, a multiple of 4
	table  []float32 // a row of taps for each phase
	grid   bool      // the rows are gridSteps+1 phases to interpolate between
	num    int64     // an output advances num/den inputs of the last stage
	den    int64
	buf    []float32 // the last inputs of the last stage
	at     int       // index in buf of the first sample under the next output's filter
	phase  int64     // the next output lies phase/den behind the sample in the middle
	in     int64     // inputs so far
	out    int64     // outputs so far
	copies bool      // equal rates
}

// New makes a converter from one rate to another, in Hz.
func New(from, to int) (*Resampler, error) {
	for _, rate := range []int{from, to} {
		if rate < MinRate || rate > MaxRate {
			return nil, fmt.Errorf("resample: a rate of %d Hz is not within %d to %d Hz", rate, MinRate, MaxRate)
		}
	}
	r := &Resampler{from: from, to: to, copies: from == to}
	if r.copies {
		return r, nil
	}
	num, den := int64(from), int64(to)
	for num >= 4*den {
		r.halvers = append(r.halvers, newHalver())
		den *= 2
	}
	for i := range r.scratch {
		r.scratch[i] = make([]float32, chunk/2+halverReach+1)
	}
	g := gcd(num, den)
	r.num, r.den = num/g, den/g
	r.design(min(1, float64(r.den)/float64(r.num)))
	half := r.taps / 2
	r.buf = make([]float32, half-1, r.taps+chunk)
	return r, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// design tabulates the filter; lower is the lower of both rates as a part of the last stage's input rate.
func (r *Resampler) design(lower float64) {
	half := int(math.Ceil(kaiserHalf(attenuation, lower/2*(1-passEdge))))
	half += half % 2
	r.taps = 2 * half
	phases := int(r.den)
	if r.grid = r.den > maxPhases; r.grid {
		phases = gridSteps
	}
	rows := phases
	if r.grid {
		rows++
	}
	r.table = make([]float32, rows*r.taps)
	cutoff := lower * (1 + passEdge) / 2 // the middle of the transition band, as a part of the input's Nyquist frequency
	beta := kaiserBeta(attenuation)
	row := make([]float64, r.taps)
	for p := range rows {
		if q := phases - p; p > q {
			mirror(r.table[p*r.taps:][:r.taps], r.table[q*r.taps:][:r.taps])
			continue
		}
		sum := 0.0
		for i := range row {
			x := float64(i-(half-1)) - float64(p)/float64(phases)
			row[i] = sinc(cutoff*x) * kaiser(x/float64(half), beta)
			sum += row[i]
		}
		for i, v := range row {
			r.table[p*r.taps+i] = float32(v / sum) // a gain of exactly 1 at 0 Hz in every phase: no tone at the phases' rate
		}
	}
}

// mirror reverses a row: the filter is symmetric, and a phase p behind a sample is a phase 1-p before the next.
func mirror(dst, src []float32) {
	for i, v := range src {
		dst[len(dst)-1-i] = v
	}
}

// Length is how many outputs n inputs give in all.
func (r *Resampler) Length(n int64) int64 {
	whole, rest := n/int64(r.from), n%int64(r.from)
	return whole*int64(r.to) + (rest*int64(r.to)+int64(r.from)-1)/int64(r.from)
}

// Append resamples a block of any length and appends the outputs that it completes to dst. It allocates only where dst is too small: n inputs
// complete at most Length(n)+1 outputs.
func (r *Resampler) Append(dst, block []float32) []float32 {
	r.in += int64(len(block))
	if r.copies {
		return append(dst, block...)
	}
	for len(block) > 0 {
		part := block[:min(len(block), chunk)]
		block = block[len(part):]
		dst = r.pass(dst, part, 0)
	}
	return dst
}

// Flush ends the stream: it appends the outputs that wait for input behind the end. The Resampler is of no use afterwards.
func (r *Resampler) Flush(dst []float32) []float32 {
	if r.copies {
		return dst
	}
	for i, h := range r.halvers {
		out := r.scratch[i%2]
		dst = r.pass(dst, out[:h.flush(out)], i+1)
	}
	var silence [chunk]float32
	for total := r.Length(r.in); r.out < total; {
		dst = r.last(dst, silence[:], total)
	}
	return dst
}

// pass sends up to chunk samples through the halvers from the given one on, and then through the last stage.
func (r *Resampler) pass(dst, in []float32, from int) []float32 {
	for i := from; i < len(r.halvers); i++ {
		out := r.scratch[i%2]
		in = out[:r.halvers[i].push(out, in)]
	}
	return r.last(dst, in, math.MaxInt64)
}

// last is the polyphase stage. It stops when limit outputs have been made in all.
func (r *Resampler) last(dst, in []float32, limit int64) []float32 {
	r.buf = append(r.buf, in...)
	for r.at+r.taps <= len(r.buf) && r.out < limit {
		dst = append(dst, r.value(r.buf[r.at:r.at+r.taps]))
		r.out++
		r.phase += r.num
		r.at += int(r.phase / r.den)
		r.phase %= r.den
	}
	used := min(r.at, len(r.buf))
	r.buf = r.buf[:copy(r.buf, r.buf[used:])]
	r.at -= used
	return dst
}

// value is one output: the filter of the current phase over the samples x.
func (r *Resampler) value(x []float32) float32 {
	if !r.grid {
		row := int(r.phase) * r.taps
		return dot(r.table[row:row+r.taps], x)
	}
	step, rest := r.phase*gridSteps/r.den, r.phase*gridSteps%r.den
	row := int(step) * r.taps
	a := dot(r.table[row:row+r.taps], x)
	b := dot(r.table[row+r.taps:row+2*r.taps], x)
	return a + (b-a)*(float32(rest)/float32(r.den))
}
