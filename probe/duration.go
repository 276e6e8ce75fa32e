package probe

import (
	"math"
	"math/bits"
	"time"
)

// durationOf is the playing time of frames at rate, rounded up to the nanosecond, so that it is longer than a limit exactly when there are more
// frames than framesWithin the limit. It saturates instead of overflowing, and is 0 for an unknown number of frames.
func durationOf(frames int64, rate int) time.Duration {
	if frames <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(frames), uint64(time.Second))
	if hi >= uint64(rate) {
		return math.MaxInt64
	}
	d, rest := bits.Div64(hi, lo, uint64(rate))
	if rest > 0 {
		d++
	}
	return time.Duration(min(d, math.MaxInt64))
}

// framesWithin is the largest number of frames at rate that lasts no longer than limit; zero is no limit.
func framesWithin(limit time.Duration, rate int) int64 {
	if limit <= 0 {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(limit), uint64(rate))
	n, _ := bits.Div64(hi, lo, uint64(time.Second)) // hi is below 2^63 x 2^19 / 2^64: smaller than the divisor
	return int64(min(n, math.MaxInt64))
}
