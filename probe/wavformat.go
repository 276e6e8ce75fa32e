package probe

import (
	"bytes"
	"encoding/binary"
)

// wavFormat is what the fmt chunk says, checked.
type wavFormat struct {
	tag      uint16 // with that of an extensible format put in its place
	rate     int
	channels int
	bytes    int // of a sample
}

func (f *wavFormat) frameBytes() int { return f.channels * f.bytes }

// codec names the samples as ffmpeg does.
func (f *wavFormat) codec(order binary.ByteOrder) string {
	end := "le"
	if order == binary.BigEndian {
		end = "be"
	}
	switch f.tag {
	case tagALaw:
		return "pcm_alaw"
	case tagMuLaw:
		return "pcm_mulaw"
	case tagFloat:
		return map[int]string{4: "pcm_f32", 8: "pcm_f64"}[f.bytes] + end
	}
	if f.bytes == 1 {
		return "pcm_u8"
	}
	return map[int]string{2: "pcm_s16", 3: "pcm_s24", 4: "pcm_s32"}[f.bytes] + end
}

// Lengths of the fmt chunk's parts.
const (
	fmtBytes           = 16
	fmtExtensibleBytes = 40
)

// subFormatTails end the 16 bytes that say what an extensible format is; a tag stands in front (KSDATAFORMAT_SUBTYPE, and the same for
// Ambisonics B-format, which is several microphones at one place).
var subFormatTails = [][]byte{
	{0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80, 0x00, 0x00, 0xAA, 0x00, 0x38, 0x9B, 0x71},
	{0x00, 0x00, 0x21, 0x07, 0xD3, 0x11, 0x86, 0x44, 0xC8, 0xC1, 0xCA, 0x00, 0x00, 0x00},
}

// parseFormat reads and checks a fmt chunk that lies within the file. It reads at most 40 bytes of it.
func (w *wavFile) parseFormat(c wavChunk) (*wavFormat, error) {
	var b [fmtExtensibleBytes]byte
	if c.size < fmtBytes {
		return nil, broken("The fmt chunk has %d bytes instead of %d.", c.size, fmtBytes)
	}
	if err := w.bytes(b[:min(c.size, fmtExtensibleBytes)], c.body); err != nil {
		return nil, err
	}
	tag := w.order.Uint16(b[0:])
	channels, rate := int64(w.order.Uint16(b[2:])), int64(w.order.Uint32(b[4:]))
	align, bits := int(w.order.Uint16(b[12:])), int(w.order.Uint16(b[14:]))
	if err := checkLimits(rate, channels); err != nil {
		return nil, err
	}
	if tag == tagExtensible {
		var err error
		if tag, err = w.subFormat(b[:], c.size, bits); err != nil {
			return nil, err
		}
	}
	f := &wavFormat{tag: tag, rate: int(rate), channels: int(channels), bytes: (bits + 7) / 8}
	if err := f.checkBits(bits); err != nil {
		return nil, err
	}
	if align != f.frameBytes() {
		return nil, broken("The header gives %d bytes per frame, but %d channels of %d bits have %d.", align, channels, bits, f.frameBytes())
	}
	return f, nil
}

// checkBits refuses what the kind of samples does not have. PCM of a width between whole bytes is stored in the next larger whole bytes
// with zeros below, so that it is read as if it were wider.
func (f *wavFormat) checkBits(bits int) error {
	ok := false
	switch f.tag {
	case tagPCM:
		ok = bits >= 8 && bits <= 32
	case tagFloat:
		ok = bits == 32 || bits == 64
	case tagALaw, tagMuLaw:
		ok = bits == 8
	default:
		return unsupportedTag(f.tag)
	}
	if !ok {
		return broken("The header gives %d bits per sample, which its format (tag 0x%04X) does not have.", bits, f.tag)
	}
	return nil
}

// subFormat finds the tag of an extensible format.
func (w *wavFile) subFormat(b []byte, size uint32, bits int) (uint16, error) {
	if size < fmtExtensibleBytes || w.order.Uint16(b[16:]) < fmtExtensibleBytes-18 {
		return 0, broken("The fmt chunk is that of an extensible format and ends before it says which.")
	}
	if valid := int(w.order.Uint16(b[18:])); valid > bits || bits%8 != 0 {
		return 0, broken("The header gives %d valid bits in samples of %d.", valid, bits)
	}
	tail := bytes.Clone(b[26:40])
	if w.order == binary.BigEndian { // its second to fourth fields are numbers
		tail[0], tail[1], tail[2], tail[3], tail[4], tail[5] = 0, 0, tail[3], tail[2], tail[5], tail[4]
		b[24], b[25] = b[26], b[27]
	}
	for _, known := range subFormatTails {
		if bytes.Equal(tail, known) {
			return w.order.Uint16(b[24:]), nil
		}
	}
	return 0, unsupported("The WAV file's samples are of an unknown extensible format, %x.", b[24:40])
}
