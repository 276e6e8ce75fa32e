// Package parakeet is the acoustic model: a FastConformer encoder with relative positions, full or local attention, and the greedy
// transducer (TDT, RNN-T) and CTC decoders on top of it. It follows NeMo from 2.5 on and Hugging Face's Parakeet, in float32, to within
// rounding; the golden vectors in testdata hold it there.
//
// A [Model] is the weights of a checkpoint on a backend. A [Session] is the memory of one pass at a time: it encodes log-mel frames and
// decodes tokens. Attention is an argument of each pass and changes nothing in the model.
//
// The package may not read files or choose the attention: asr/checkpoint does the one, asr.NewPlan the other. It imports
// asr/ml and asr/checkpoint only, and touches no numbers outside of the backend but the position table and the folding of weights at load.
package parakeet

import "fmt"

// Frames counts log-mel frames, of 10 ms.
type Frames int

// EncoderFrames counts frames after the subsampling, of 80 ms.
type EncoderFrames int

// Encoded is the number of encoder frames of f log-mel frames: ceil(f/8), by three halvings that round up.
func (f Frames) Encoded() EncoderFrames { return EncoderFrames((f + 7) / 8) }

// Attention is the window of the encoder's attention in encoder frames: a query at i sees the keys from i-Left to i+Right.
type Attention struct{ Left, Right int }

// Full is attention without bounds.
var Full = Attention{-1, -1}

// IsFull reports whether a has no bounds.
func (a Attention) IsFull() bool { return a == Full }

// Valid refuses windows with one bound only: no checkpoint was trained like that.
func (a Attention) Valid() error {
	if a.IsFull() || a.Left >= 0 && a.Right >= 0 {
		return nil
	}
	return fmt.Errorf("attention window %d,%d is neither two bounds nor -1,-1", a.Left, a.Right)
}

// LogMel is the input of a pass: normalized log-mel features, row-major [Frames][mels], padding frames left out.
type LogMel struct {
	Frames Frames
	Values []float32
}

// Token is one emitted piece.
type Token struct {
	ID    int
	Frame EncoderFrames // at which it was emitted
	// Duration is what the duration head said (TDT), not clipped at the end of the audio; 1 for RNN-T; for CTC the length of
	// the run of frames that said the same.
	Duration EncoderFrames
}
