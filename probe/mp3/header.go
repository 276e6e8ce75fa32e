package mp3

// Version is an edition of MPEG audio.
type Version uint8

// The editions. MPEG-2 halves the rates of MPEG-1 (low sampling frequencies), MPEG-2.5 halves them again and is in no standard.
const (
	MPEG1 Version = iota
	MPEG2
	MPEG25
)

// Mode is how channels are coded.
type Mode uint8

// The modes, with the values of the header (ISO 11172-3, section 2.4.2.3).
const (
	Stereo Mode = iota
	JointStereo
	DualChannel
	Mono
)

// HeaderBytes is the length of a frame's header.
const HeaderBytes = 4

// Header is that of a frame of MPEG audio, any layer (ISO 11172-3, section 2.4.1.3, and ISO 13818-3, section 2.4.2.3).
type Header struct {
	Version   Version
	Layer     int  // 1 to 3; 3 is MP3
	Protected bool // two bytes of a checksum follow the header
	Bitrate   int  // bit/s; 0 for free format, whose frames have a length of their own
	Rate      int  // Hz
	Padded    bool // one slot longer than others
	Mode      Mode
	Extension uint8 // what joint stereo does in this frame: bit 0 intensity, bit 1 mid and side, for Layer III
}

// bitratesK are the bit rates in kbit/s by MPEG-1 or not, layer less one, and index. 0 is free format.
var bitratesK = [2][3][15]int{
	{
		{0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
		{0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
		{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
	}, {
		{0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
		{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
		{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
	},
}

var rates = [3]int{44100, 48000, 32000} // of MPEG-1, by index

// ParseHeader reads a header. ok is false for bytes that are none, and for reserved values.
func ParseHeader(b []byte) (h Header, ok bool) {
	if len(b) < HeaderBytes || b[0] != 0xFF || b[1]&0xE0 != 0xE0 {
		return Header{}, false
	}
	version, layer, bitrate, rate := b[1]>>3&3, b[1]>>1&3, b[2]>>4, b[2]>>2&3
	if version == 1 || layer == 0 || bitrate == 15 || rate == 3 || b[3]&3 == 2 { // the last is a reserved emphasis
		return Header{}, false
	}
	h.Version = [4]Version{MPEG25, 0, MPEG2, MPEG1}[version]
	h.Layer = 4 - int(layer)
	h.Protected = b[1]&1 == 0
	h.Bitrate = 1000 * bitratesK[min(h.Version, 1)][h.Layer-1][bitrate]
	h.Rate = rates[rate] >> h.Version
	h.Padded = b[2]&2 != 0
	h.Mode = Mode(b[3] >> 6)
	h.Extension = b[3] >> 4 & 3
	return h, true
}

// Channels is 1 or 2.
func (h Header) Channels() int {
	if h.Mode == Mono {
		return 1
	}
	return 2
}

// Samples is how many samples per channel the frame decodes to.
func (h Header) Samples() int {
	switch {
	case h.Layer == 1:
		return 384
	case h.Layer == 3 && h.Version != MPEG1:
		return 576
	}
	return 1152
}

// slotBytes is the unit of a frame's length.
func (h Header) slotBytes() int {
	if h.Layer == 1 {
		return 4
	}
	return 1
}

// Bytes is the frame's length with its header; 0 for free format, see FreeBytes.
func (h Header) Bytes() int {
	if h.Bitrate == 0 {
		return 0
	}
	return h.FreeBytes(h.Samples() / 8 * h.Bitrate / h.Rate / h.slotBytes() * h.slotBytes())
}

// FreeBytes is the frame's length in a stream of free format whose frames without padding have the given length.
func (h Header) FreeBytes(unpadded int) int {
	if h.Padded {
		return unpadded + h.slotBytes()
	}
	return unpadded
}

// Continues reports whether a frame with this header can follow one with the other: the bit rate, the padding and how channels are joined
// may change within a stream, but not what kind of stream it is.
func (h Header) Continues(o Header) bool {
	return h.Version == o.Version && h.Layer == o.Layer && h.Rate == o.Rate && h.Channels() == o.Channels() && (h.Bitrate == 0) == (o.Bitrate == 0)
}

// sideBytes is the length of the side information of a Layer III frame (ISO 11172-3, section 2.4.1.7; ISO 13818-3, section 2.4.1.7).
func (h Header) sideBytes() int {
	switch {
	case h.Version == MPEG1 && h.Mode == Mono, h.Version != MPEG1 && h.Mode != Mono:
		return 17
	case h.Version == MPEG1:
		return 32
	}
	return 9
}

// dataAt is where the side information starts.
func (h Header) sideAt() int {
	if h.Protected {
		return HeaderBytes + 2
	}
	return HeaderBytes
}
