package aviary

import (
	"math"
	"time"
)

// SampleRate is the rate, in samples per second, of all audio that the engine hears.
const SampleRate = 16000

// PCM is mono audio at SampleRate, one float32 per sample, nominally within ±1.
type PCM []float32

// Duration is the playing time of p.
func (p PCM) Duration() time.Duration {
	return time.Duration(float64(len(p)) / SampleRate * float64(time.Second))
}

// Audio is what the prober found an upload to be.
type Audio struct {
	Container  string        `json:"container"`   // "wav", "flac"
	Codec      string        `json:"codec"`       // "pcm_s16le", "flac"
	SampleRate int           `json:"sample_rate"` // of the upload, Hz
	Channels   int           `json:"channels"`
	Duration   time.Duration `json:"-"`
	Bytes      int64         `json:"bytes"`
	SHA256     string        `json:"sha256,omitempty"`   // of the upload, hex
	Warnings   []string      `json:"warnings,omitempty"` // what a user should know about the recording, as sentences
}

// Format is a kind of recording, and whether this process can decode it.
type Format struct {
	Name      string `json:"name"`    // "M4A (AAC)"
	Decoder   string `json:"decoder"` // "built in" or "ffmpeg"
	Available bool   `json:"available"`
}

// Seconds converts a floating-point number of seconds to a duration. It reports false for a value that is not finite, negative, or too
// large for a time.Duration: such a value must never reach a limit or a histogram.
func Seconds(s float64) (time.Duration, bool) {
	const longest = float64(math.MaxInt64) / float64(time.Second)
	if math.IsNaN(s) || s < 0 || s >= longest {
		return 0, false
	}
	return time.Duration(math.Round(s * float64(time.Second))), true
}
