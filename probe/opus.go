package probe

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pion/opus"
)

// Opus packets (RFC 6716) and the header that containers keep for them (RFC 7845, section 5.1). Everything is decoded and counted at 48 kHz.

const (
	opusRate = 48000

	maxOpusFrames     = opusRate * 120 / 1000 // of a packet (RFC 6716, section 3.2.5)
	maxOpusFrameBytes = 1275                  // of one of a packet's frames (section 3.2.1)
	// maxOpusBytes bounds packets. One stream needs no more than 61,298 bytes, for 48 frames of 2.5 ms; several streams and padding could make more, but
	// nobody does.
	maxOpusBytes = 64 << 10
)

const opusMagic = "OpusHead"

// opusHead is the identification header of an Opus stream.
type opusHead struct {
	channels int
	preSkip  int64 // frames at 48 kHz that are not to be heard
	rate     int   // Hz, of what was encoded; only a hint
	gain     int   // of the output, in dB/256
	family   int   // how channels are laid out: 0 is mono or stereo
	streams  int   // Opus streams in a packet
	coupled  int   // of them, the first that have two channels
	mapping  []byte
}

// parseOpusHead reads the header packet, which is also the CodecPrivate of Matroska.
func parseOpusHead(b []byte) (opusHead, error) {
	if len(b) < 19 || string(b[:8]) != opusMagic {
		return opusHead{}, broken("The Opus header has %d bytes and is cut off or damaged.", len(b))
	}
	h := opusHead{
		channels: int(b[9]),
		preSkip:  int64(binary.LittleEndian.Uint16(b[10:])),
		rate:     int(min(binary.LittleEndian.Uint32(b[12:]), math.MaxInt32)),
		gain:     int(int16(binary.LittleEndian.Uint16(b[16:]))),
		family:   int(b[18]),
	}
	switch {
	case b[8]>>4 != 0: // a major version that older readers cannot read
		return h, unsupported("The Opus header has version %d, which is not known.", b[8])
	case h.channels == 0:
		return h, broken("The Opus header gives 0 channels.")
	case h.family == 0:
		if h.channels > 2 {
			return h, broken("The Opus header gives %d channels in a layout for one or two.", h.channels)
		}
		h.streams, h.coupled, h.mapping = 1, h.channels-1, []byte{0, 1}[:h.channels]
		return h, nil
	case len(b) < 21+h.channels:
		return h, broken("The Opus header is too short for %d channels.", h.channels)
	}
	h.streams, h.coupled, h.mapping = int(b[19]), int(b[20]), b[21:21+h.channels]
	if h.streams == 0 || h.coupled > h.streams || h.streams+h.coupled > 255 || h.family == 1 && h.channels > 8 {
		return h, broken("The Opus header gives %d streams, %d of them in stereo, for %d channels.", h.streams, h.coupled, h.channels)
	}
	for _, m := range h.mapping {
		if int(m) >= h.streams+h.coupled && m != 255 { // 255 is silence
			return h, broken("The Opus header maps a channel to one that no stream has.")
		}
	}
	return h, nil
}

// plain says whether packets are those of one stream whose channels come out in order: what the decoder of this process can do.
func (h opusHead) plain() bool {
	return h.streams == 1 && h.channels == 1+h.coupled && h.mapping[0] == 0 && h.mapping[h.channels-1] == byte(h.channels-1)
}

// frames checks how a packet is put together and says how long it lasts at 48 kHz.
func (h opusHead) frames(data []byte) (int64, error) {
	var total int64
	for i := range h.streams {
		n, size, err := opusUnit(data, i < h.streams-1)
		if err != nil {
			return 0, err
		}
		if i > 0 && n != total {
			return 0, broken("The streams of an Opus packet last %d and %d frames.", total, n)
		}
		total, data = n, data[size:]
	}
	return total, nil
}

// opusPacketFrames is how long a packet of one stream lasts, in frames at 48 kHz. It refuses what is no valid packet. Packets of more than two
// channels hold several streams: see opusHead.frames.
func opusPacketFrames(data []byte) (frames int64, err error) {
	frames, _, err = opusUnit(data, false)
	return frames, err
}

// opusUnit reads the framing of one stream's part of a packet (RFC 6716, sections 3.1 and 3.2): how long it lasts and how many bytes it has. Of
// several streams in a packet, all but the last are delimited: they say how long their last frame is (appendix B).
func opusUnit(b []byte, delimited bool) (frames int64, size int, err error) {
	if len(b) == 0 {
		return 0, 0, broken("An Opus packet is empty.")
	}
	count, vbr, padding, at := 1, false, 0, 1
	switch b[0] & 3 {
	case 1:
		count = 2
	case 2:
		count, vbr = 2, true
	case 3:
		if count, vbr, padding, at = opusCount(b); count == 0 {
			return 0, 0, broken("An Opus packet of %d bytes holds no frames.", len(b))
		}
	}
	if frames = int64(count) * opusFrameFrames(b[0]); frames > maxOpusFrames {
		return 0, 0, broken("An Opus packet claims %d frames of %d ms, more than 120 ms in all.", count, opusFrameFrames(b[0])*1000/opusRate)
	}
	rest := opusLengths{b: b, at: at}
	sum := 0
	if vbr {
		for range count - 1 {
			sum += rest.next()
		}
	}
	last := 0
	switch equal := !vbr; {
	case delimited && equal:
		sum = rest.next() * count
	case delimited:
		sum += rest.next()
	default:
		last = len(b) - rest.at - sum - padding
		if equal && last%count != 0 {
			return 0, 0, broken("An Opus packet of %d bytes does not divide into %d frames.", len(b), count)
		} else if equal {
			last /= count
			sum = last * (count - 1)
		}
	}
	size = rest.at + sum + last + padding
	if last < 0 || last > maxOpusFrameBytes || size > len(b) {
		return 0, 0, broken("An Opus packet of %d bytes does not hold the %d frames that it claims.", len(b), count)
	}
	return frames, size, nil
}

// opusFrameFrames is the length of each frame of a packet with this first byte, at 48 kHz.
func opusFrameFrames(toc byte) int64 {
	switch config := toc >> 3; {
	case config < 12: // SILK
		return []int64{480, 960, 1920, 2880}[config&3]
	case config < 16: // hybrid
		return 480 << (config & 1)
	default: // CELT
		return 120 << (config & 3)
	}
}

// opusCount reads the count byte of a packet of any number of frames, and the length of its padding (RFC 6716, section 3.2.5). Padding that the
// packet does not have makes the count 0.
func opusCount(b []byte) (count int, vbr bool, padding, at int) {
	if len(b) < 2 {
		return 0, false, 0, 0
	}
	count, vbr, at = int(b[1]&0x3F), b[1]&0x80 != 0, 2
	for more := b[1]&0x40 != 0; more; at++ {
		if at >= len(b) {
			return 0, false, 0, 0
		}
		if more = b[at] == 255; more {
			padding += 254
		} else {
			padding += int(b[at])
		}
	}
	return count, vbr, padding, at
}

// opusLengths reads lengths of frames (RFC 6716, section 3.2.1). Those that are cut off count as more than any packet has.
type opusLengths struct {
	b  []byte
	at int
}

func (l *opusLengths) next() int {
	rest := l.b[min(l.at, len(l.b)):]
	switch {
	case len(rest) > 0 && rest[0] < 252:
		l.at++
		return int(rest[0])
	case len(rest) > 1:
		l.at += 2
		return int(rest[0]) + 4*int(rest[1])
	}
	return len(l.b)
}

// opusDecoder decodes mono and stereo.
type opusDecoder struct {
	decoder  opus.Decoder
	channels int
	scale    float32
}

// opusInside says whether opusDecoder can do a stream.
func opusInside(st stream) bool {
	h, err := parseOpusHead(st.setup)
	return err == nil && h.plain()
}

func newOpusDecoder(st stream) (decoder, error) {
	h, err := parseOpusHead(st.setup)
	if err != nil {
		return nil, err
	}
	d := &opusDecoder{channels: h.channels, scale: float32(math.Pow(10, float64(h.gain)/256/20))}
	return d, d.reset()
}

func (d *opusDecoder) reset() (err error) {
	if d.decoder, err = opus.NewDecoderWithOutput(opusRate, d.channels); err != nil {
		return fmt.Errorf("opus: %w", err)
	}
	return nil
}

// decode implements decoder. An OpusHead, which is no valid packet (it would last 960 ms), starts over.
func (d *opusDecoder) decode(dst []float32, data []byte) (_ []float32, err error) {
	if len(data) >= len(opusMagic) && string(data[:len(opusMagic)]) == opusMagic {
		return dst, d.reset()
	}
	frames, err := opusPacketFrames(data)
	if err != nil {
		return dst, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = broken("An Opus packet of %d bytes cannot be decoded.", len(data))
		}
	}()
	at := len(dst)
	dst = grown(dst, int(frames)*d.channels)
	out := dst[at:]
	n, err := d.decoder.DecodeToFloat32(data, out)
	if err != nil || int64(n) != frames {
		return dst[:at], broken("An Opus packet of %d bytes cannot be decoded.", len(data))
	}
	if d.scale != 1 {
		for i := range out {
			out[i] *= d.scale
		}
	}
	return dst, nil
}

// grown is dst with n more samples, of any value.
func grown(dst []float32, n int) []float32 {
	if n > cap(dst)-len(dst) {
		dst = append(make([]float32, 0, len(dst)+n), dst...)
	}
	return dst[:len(dst)+n]
}
