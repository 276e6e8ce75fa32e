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

// alacConfig is an ALACSpecificConfig.
type alacConfig struct {
	setup          []byte // itself
	rate, channels int
	bits           int   // of a sample, where it has more than 16
	frames         int64 // of each packet but the last
}

// alacConfigBytes is its length.
const alacConfigBytes = 24

// parseALACConfig reads it (Apple Lossless reference: ALACMagicCookieDescription).
func parseALACConfig(b []byte) (alacConfig, error) {
	if len(b) < alacConfigBytes {
		return alacConfig{}, broken("The Apple Lossless track has no configuration.")
	}
	frames, bits, channels, rate := int64(binary.BigEndian.Uint32(b)), int(b[5]), int64(b[9]), int64(binary.BigEndian.Uint32(b[20:]))
	c := alacConfig{setup: b[:alacConfigBytes:alacConfigBytes], rate: int(rate), channels: int(channels), frames: frames}
	if bits > 16 {
		c.bits = bits
	}
	return c, nil
}

// check refuses a configuration that no encoder writes.
func (c alacConfig) check() error {
	if !c.plausibleFrames() {
		return broken("The Apple Lossless track claims packets of %d frames.", c.frames)
	}
	return checkLimits(int64(c.rate), int64(c.channels))
}

func (c alacConfig) plausibleFrames() bool { return c.frames > 0 && c.frames <= maxALACFrames }
