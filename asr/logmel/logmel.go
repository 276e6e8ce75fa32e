// Package logmel turns audio into the features that a Parakeet model hears:
// the logarithm of the energy in mel bands, every 10 ms, normalized per band
// over the whole utterance. It computes what NeMo (since July 2025) and
// Hugging Face's ParakeetFeatureExtractor compute, to 1e-4.
//
// It knows nothing of models beyond that: no chunks, no padding of batches, no
// resampling. Callers bring all samples of an utterance at once, because the
// normalization needs them.
package logmel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Samples counts samples of audio, 1/16000 s each.
type Samples int

// Frames counts columns of features, 10 ms each.
type Frames int

// The front end of all Parakeet models.
const (
	SampleRate  = 16000 // Hz
	Window      = 400   // samples, 25 ms
	Hop         = 160   // samples, 10 ms
	NFFT        = 512   // samples
	Preemphasis = 0.97
)

// guard is added to an energy before the logarithm: 2^-24.
const guard = 0x1p-24

// stdFloor is added to a standard deviation before the division.
const stdFloor = 1e-5

// FrameCount is the number of frames of n samples: only whole hops count.
func FrameCount(n Samples) Frames { return Frames(max(n, 0) / Hop) }

// Config is what a checkpoint says about its front end.
type Config struct {
	SampleRate  int // Hz
	Window, Hop int // samples
	NFFT        int // samples
	Preemphasis float64
	Mels        int
}

// Extractor computes features. It may be used from several goroutines at once.
type Extractor struct {
	mels   int
	window [Window]float64
	bank   []melFilter
	fft    fftTables
}

// New makes an extractor for c. Only the number of mel bins is free; other
// values than this package's constants are refused, as no Parakeet model has
// them.
func New(c Config) (*Extractor, error) {
	want := Config{SampleRate: SampleRate, Window: Window, Hop: Hop, NFFT: NFFT, Preemphasis: Preemphasis, Mels: c.Mels}
	if c != want {
		return nil, fmt.Errorf("log-mel front end %+v is not supported, expected %+v", c, want)
	}
	if c.Mels < 1 || c.Mels > NFFT/2 {
		return nil, fmt.Errorf("%d mel bins, expected 1 to %d", c.Mels, NFFT/2)
	}
	return &Extractor{mels: c.Mels, window: hann(), bank: melBank(c.Mels), fft: newFFTTables()}, nil
}

// hann is the symmetric Hann window: both ends are zero.
func hann() (w [Window]float64) {
	for n := range w {
		w[n] = 0.5 - 0.5*math.Cos(2*math.Pi*float64(n)/(Window-1))
	}
	return w
}

// Features of one utterance.
type Features struct {
	Frames Frames
	Mels   int
	Data   []float32 // [Frames, Mels], row-major
}

// Extract computes the features of an utterance at SampleRate: FrameCount rows
// of the model's number of mel bins. Less than one hop gives no rows, and a
// single row is all zeros. It uses all processors, returns soon after ctx ends
// with its error, and refuses samples that are not finite.
func (e *Extractor) Extract(ctx context.Context, pcm []float32) (Features, error) {
	f := Features{Frames: FrameCount(Samples(len(pcm))), Mels: e.mels}
	f.Data = make([]float32, int(f.Frames)*e.mels)
	if err := e.logMels(ctx, pcm, f.Data); err != nil {
		return Features{}, fmt.Errorf("log-mel: %w", err)
	}
	if err := normalize(ctx, f); err != nil {
		return Features{}, fmt.Errorf("log-mel: %w", err)
	}
	return f, nil
}

// blockFrames is how many frames a worker takes at a time, about 1 ms of work;
// between blocks it looks at the context.
const blockFrames = 128

// logMels fills dst, [FrameCount, mels], before normalization.
func (e *Extractor) logMels(ctx context.Context, pcm []float32, dst []float32) error {
	frames := len(dst) / e.mels
	blocks := (frames + blockFrames - 1) / blockFrames
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), blocks) {
		wg.Go(func() {
			var s scratch
			for ctx.Err() == nil {
				b := int(next.Add(1)) - 1
				if b >= blocks {
					return
				}
				for k := b * blockFrames; k < min(frames, (b+1)*blockFrames); k++ {
					e.frame(pcm, k, &s, dst[k*e.mels:(k+1)*e.mels])
				}
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// scratch is a worker's memory.
type scratch struct {
	time  [NFFT]float64
	fft   fftScratch
	power [NFFT/2 + 1]float64
}

// frame computes row k. The reference pads with NFFT/2 zeros in front and puts
// the window in the middle of NFFT samples, so the window's center is on sample
// Hop*k, and samples outside the audio are zero, after the pre-emphasis.
func (e *Extractor) frame(pcm []float32, k int, s *scratch, row []float32) {
	first := Hop*k - Window/2
	windowed := s.time[(NFFT-Window)/2:][:Window]
	for i := range windowed {
		windowed[i] = e.window[i] * emphasized(pcm, first+i)
	}
	e.fft.power(&s.time, &s.fft, &s.power)
	for m := range e.bank {
		row[m] = float32(math.Log(e.bank[m].energy(&s.power) + guard))
	}
}

// emphasized is sample n after pre-emphasis, zero outside the audio.
func emphasized(pcm []float32, n int) float64 {
	switch {
	case n < 0 || n >= len(pcm):
		return 0
	case n == 0:
		return float64(pcm[0])
	}
	return float64(pcm[n]) - Preemphasis*float64(pcm[n-1])
}

// normalize brings each mel bin to mean 0 and standard deviation 1 over all
// frames, in place, with the sample variance (divided by F-1). It takes two
// passes in float64, so hours of audio lose nothing.
func normalize(ctx context.Context, f Features) error {
	switch f.Frames {
	case 0:
		return nil
	case 1: // the variance of one value does not exist; NeMo takes 0, and x - mean is 0
		clear(f.Data)
		return nil
	}
	n := float64(f.Frames)
	mean := make([]float64, f.Mels)
	err := eachBlock(ctx, f, func(row []float32) {
		for m, x := range row {
			mean[m] += float64(x)
		}
	})
	for m := range mean {
		mean[m] /= n
		if math.IsNaN(mean[m]) || math.IsInf(mean[m], 0) {
			return errors.New("the audio has samples that are not finite")
		}
	}
	if err != nil {
		return err
	}
	scale := make([]float64, f.Mels)
	err = eachBlock(ctx, f, func(row []float32) {
		for m, x := range row {
			d := float64(x) - mean[m]
			scale[m] += d * d
		}
	})
	if err != nil {
		return err
	}
	for m := range scale {
		scale[m] = 1 / (math.Sqrt(scale[m]/(n-1)) + stdFloor)
	}
	return eachBlock(ctx, f, func(row []float32) {
		for m, x := range row {
			row[m] = float32((float64(x) - mean[m]) * scale[m])
		}
	})
}

// eachBlock calls visit with every row, and looks at ctx now and then.
func eachBlock(ctx context.Context, f Features, visit func(row []float32)) error {
	for k := range int(f.Frames) {
		if k%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		visit(f.Data[k*f.Mels : (k+1)*f.Mels])
	}
	return nil
}
