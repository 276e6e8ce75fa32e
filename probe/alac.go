package probe

import (
	"encoding/binary"
	"math"
)

// Apple Lossless, in packets.

// alacFrames is how many sample frames a packet of Apple Lossless has, which a bit in its first element's head says if they are fewer than usual: behind
// 19 bits, before 3 that do not matter here and the number (Apple's reference decoder, ALACDecoder.cpp).
func alacFrames(data []byte, usual int64) int64 {
	if len(data) < alacHeadBytes || data[2]&0x10 == 0 {
		return usual
	}
	return min(int64(binary.BigEndian.Uint64(data)>>9&math.MaxUint32), usual)
}

const alacHeadBytes = 8

// maxALACFrames bounds the sample frames of a packet; encoders write 4,096.
const maxALACFrames = 1 << 16
