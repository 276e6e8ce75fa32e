package probe

import (
	"bytes"
	"encoding/binary"
)

// wavFormat is what the fmt chunk says, checked.
type wavFormat struct {
	tag        uint16 // with that of an extensible format put in its place
	rate       int
	channels   int
	frameBytes int          // where samples are not coded
	pcm        pcmFormat    // what the samples are then
	padded     bool         // 24 bits stand somewhere in 32: see place24
	coding     *blockCoding // how samples are coded; nil where they are not
}

// frames is how many sample frames so many bytes hold.
func (f *wavFormat) frames(bytes int64) int64 {
	if f.coding != nil {
		return f.coding.frames(bytes)
	}
	return bytes / int64(f.frameBytes)
}

// Kinds of samples, by format tag (RFC 2361 lists them).
const (
	tagPCM        = 0x0001
	tagMicrosoft  = 0x0002
	tagFloat      = 0x0003
	tagALaw       = 0x0006
	tagMuLaw      = 0x0007
	tagIMA        = 0x0011
	tagYamaha     = 0x0020
	tagGSM        = 0x0031
	tagG726       = 0x0045
	tagG726ADPCM  = 0x0064
	tagMP3        = 0x0055
	tagG722       = 0x028F
	tagExtensible = 0xFFFE
)

// Lengths of the fmt chunk's parts.
const (
	fmtBytes           = 16
	fmtSizedBytes      = 18 // with the size of what follows
	fmtExtensibleBytes = 40
	fmtMostBytes       = fmtSizedBytes + 4 + 256*4 // with all coefficients that ADPCM can have
)

// wavHeader is the fmt chunk as it is written.
type wavHeader struct {
	tag, align, bits uint16
	channels         uint16
	rate             uint32
	order            binary.ByteOrder
	extension        []byte
	raw              []byte // up to the extension's end
}

// readHeader reads a fmt chunk that lies within the file.
func (w *wavFile) readHeader(c wavChunk) (*wavHeader, error) {
	if c.size < fmtBytes {
		return nil, broken("The fmt chunk has %d bytes instead of %d.", c.size, fmtBytes)
	}
	b := make([]byte, min(c.size, fmtMostBytes))
	if err := w.bytes(b, c.body); err != nil {
		return nil, err
	}
	h := &wavHeader{
		tag: w.order.Uint16(b[0:]), channels: w.order.Uint16(b[2:]), rate: w.order.Uint32(b[4:]),
		align: w.order.Uint16(b[12:]), bits: w.order.Uint16(b[14:]), order: w.order, raw: b[:fmtBytes:fmtBytes],
	}
	if len(b) >= fmtSizedBytes {
		end := fmtSizedBytes + int(w.order.Uint16(b[fmtBytes:]))
		h.raw = b[:min(end, len(b))]
		h.extension = h.raw[fmtSizedBytes:]
	}
	return h, checkLimits(int64(h.rate), int64(h.channels))
}

// parseFormat reads and checks a fmt chunk that lies within the file.
func (w *wavFile) parseFormat(c wavChunk) (*wavFormat, error) {
	h, err := w.readHeader(c)
	if err != nil {
		return nil, err
	}
	f := &wavFormat{tag: h.tag, rate: int(h.rate), channels: int(h.channels)}
	if h.tag == tagExtensible {
		if f.tag, err = h.subFormat(); err != nil {
			return nil, err
		}
	}
	switch f.tag {
	case tagPCM, tagFloat, tagALaw, tagMuLaw:
		return f, f.setPCM(h)
	case tagMP3:
		f.frameBytes = 1 // for what is claimed and concealed, bytes stand in for frames
		return f, nil
	}
	newCoding := wavCodings[f.tag]
	if newCoding == nil || h.tag == tagExtensible || h.order == binary.BigEndian {
		return nil, unsupportedTag(f.tag)
	}
	f.coding, err = newCoding(h)
	return f, err
}

// setPCM checks that samples are such as their kind has. PCM of a width between whole bytes is stored in the next larger whole bytes with
// zeros below, so that it is read as if it were wider.
func (f *wavFormat) setPCM(h *wavHeader) error {
	bits := int(h.bits)
	f.pcm = pcmFormat{bytes: (bits + 7) / 8, bigEndian: h.order == binary.BigEndian}
	ok := bits == 8
	switch f.tag {
	case tagPCM:
		ok = bits >= 8 && bits <= 32 || bits == 64
		if f.pcm.bytes == 1 {
			f.pcm.kind = pcmUnsigned
		}
	case tagFloat:
		f.pcm.kind, ok = pcmFloat, bits == 32 || bits == 64
	case tagALaw:
		f.pcm.kind = pcmALaw
	case tagMuLaw:
		f.pcm.kind = pcmMuLaw
	}
	if !ok {
		return broken("The header gives %d bits per sample, which its format (tag 0x%04X) does not have.", bits, f.tag)
	}
	if h.tag == tagPCM && bits == 24 && int(h.align) == 4*f.channels {
		f.padded, f.pcm.bytes = true, 4
	}
	f.frameBytes = f.channels * f.pcm.bytes
	if int(h.align) != f.frameBytes {
		return broken("The header gives %d bytes per frame, but %d channels of %d bits have %d.", h.align, f.channels, bits, f.frameBytes)
	}
	return nil
}

// place24 finds out where 24 bits stand in 32. Microsoft's rule for wider samples is the upper part, with zeros below; recorders that follow ALSA
// (arecord) write the lower part, with the sign above. The start of the data shows which; if it is silence, it is taken for the upper part, for
// the lower one would then only be quieter.
func (w *wavFile) place24() error {
	b := make([]byte, min(pcmBufferBytes, w.dataBytes)/4*4)
	if err := w.bytes(b, w.dataAt); err != nil {
		return err
	}
	below, above := false, false
	for ; len(b) > 0; b = b[4:] {
		v := w.order.Uint32(b)
		below = below || v&0xFF != 0
		top := v >> 23
		above = above || top > 1 && top != 1<<9-1
	}
	switch {
	case below && above:
		return broken("The header gives 4 bytes for samples of 24 bits, but all 32 bits are in use.")
	case below:
		w.format.pcm.above = 8
	}
	return nil
}

// subFormatTails end the 16 bytes that say what an extensible format is; a tag stands in front (KSDATAFORMAT_SUBTYPE, and the same for
// Ambisonics B-format, which is several microphones at one place).
var subFormatTails = [][]byte{
	{0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80, 0x00, 0x00, 0xAA, 0x00, 0x38, 0x9B, 0x71},
	{0x00, 0x00, 0x21, 0x07, 0xD3, 0x11, 0x86, 0x44, 0xC8, 0xC1, 0xCA, 0x00, 0x00, 0x00},
}

// subFormat finds the tag of an extensible format.
func (h *wavHeader) subFormat() (uint16, error) {
	const validAt, tagAt = 0, 6 // in the extension
	e := h.extension
	if len(e) < fmtExtensibleBytes-fmtSizedBytes {
		return 0, broken("The fmt chunk is that of an extensible format and ends before it says which.")
	}
	if valid := h.order.Uint16(e[validAt:]); valid > h.bits || h.bits%8 != 0 {
		return 0, broken("The header gives %d valid bits in samples of %d.", valid, h.bits)
	}
	tag, tail := h.order.Uint16(e[tagAt:]), bytes.Clone(e[tagAt+2:tagAt+16])
	if h.order == binary.BigEndian { // the first four fields are numbers: of 32, 16 and 16 bits
		tag = h.order.Uint16(e[tagAt+2:])
		tail[0], tail[1], tail[2], tail[3], tail[4], tail[5] = 0, 0, tail[3], tail[2], tail[5], tail[4]
	}
	for _, known := range subFormatTails {
		if bytes.Equal(tail, known) {
			return tag, nil
		}
	}
	return 0, unsupported("The WAV file's samples are of an unknown extensible format, %x.", e[tagAt:tagAt+16])
}

// wavTags names tags whose samples are coded in ways that are not decoded here.
var wavTags = map[uint16]string{
	tagMicrosoft: "Microsoft ADPCM", 0x0010: "OKI ADPCM", tagIMA: "IMA ADPCM", 0x0016: "G.723 ADPCM", tagYamaha: "Yamaha ADPCM", 0x0022: "TrueSpeech",
	tagGSM: "GSM 6.10", 0x0040: "G.721 ADPCM", 0x0042: "G.723.1", tagG726: "G.726 ADPCM", 0x0050: "MPEG Layer I or II", tagMP3: "MP3",
	tagG726ADPCM: "G.726 ADPCM", 0x0083: "G.729", 0x0092: "AC-3 over S/PDIF", 0x00FF: "AAC", 0x0160: "Windows Media Audio 1", 0x0161: "Windows Media Audio 2",
	0x0162: "Windows Media Audio Pro", 0x0163: "Windows Media Audio Lossless", 0x0200: "Creative ADPCM", tagG722: "G.722 ADPCM", 0x0270: "ATRAC3",
	0x1610: "AAC", 0x2000: "AC-3", 0x2001: "DTS", 0x5756: "WavPack", 0x674F: "Vorbis", 0xA106: "AAC", 0xA109: "Speex", 0xF1AC: "FLAC",
}

// unsupportedTag refuses samples of a kind that is not decoded.
func unsupportedTag(tag uint16) error {
	name, ok := wavTags[tag]
	if !ok {
		return unsupported("The WAV file's samples are coded in an unknown way, tag 0x%04X.", tag)
	}
	return unsupported("The WAV file's samples are %s, which is not supported.", name)
}
