package probe

import (
	"encoding/binary"

	"github.com/aviary-asr/aviary/probe/mp4"
)

// Flags of lpcm (QuickTime File Format, Sound Sample Description version 2; CoreAudio's kAudioFormatFlag constants).
const (
	lpcmFloat     = 1 << 0
	lpcmBigEndian = 1 << 1
	lpcmSigned    = 1 << 2
	lpcmPacked    = 1 << 3
	lpcmHigh      = 1 << 4 // samples stand in the upper bits
	lpcmPlanes    = 1 << 5 // channel by channel
)

// mp4PCM is the PCM of a sample entry, if it is any. Numbers in the entry that make no sense give a format that is not known.
func mp4PCM(e *mp4.Entry) (f pcmFormat, ok bool) {
	width := int(min(max(e.Bits, 0), 1024)+7) / 8
	swapped := func() bool { b := e.Box("enda"); return len(b) >= 2 && binary.BigEndian.Uint16(b) == 1 }
	switch e.Format {
	case "sowt", "ms\x00\x01":
		return pcmFormat{kind: pcmSigned, bytes: width}, true
	case "twos":
		return pcmFormat{kind: pcmSigned, bytes: width, bigEndian: !swapped()}, true
	case "raw ", "NONE":
		if width == 1 {
			return pcmFormat{kind: pcmUnsigned, bytes: 1}, true
		}
		return pcmFormat{kind: pcmSigned, bytes: width, bigEndian: true}, true
	case "in24":
		return pcmFormat{kind: pcmSigned, bytes: 3, bigEndian: !swapped()}, true
	case "in32":
		return pcmFormat{kind: pcmSigned, bytes: 4, bigEndian: !swapped()}, true
	case "fl32":
		return pcmFormat{kind: pcmFloat, bytes: 4, bigEndian: !swapped()}, true
	case "fl64":
		return pcmFormat{kind: pcmFloat, bytes: 8, bigEndian: !swapped()}, true
	case "ulaw", "ms\x00\x07":
		return pcmFormat{kind: pcmMuLaw, bytes: 1}, true
	case "alaw", "ms\x00\x06":
		return pcmFormat{kind: pcmALaw, bytes: 1}, true
	case "lpcm":
		return lpcm(e, width), true
	case "ipcm", "fpcm": // ISO 23003-5, section 5
		b := e.Box("pcmC")
		if len(b) < 6 {
			return pcmFormat{}, true
		}
		f = pcmFormat{kind: pcmSigned, bytes: int(b[5]) / 8, bigEndian: b[4]&1 == 0}
		if e.Format == "fpcm" {
			f.kind = pcmFloat
		}
		return f, true
	}
	return pcmFormat{}, false
}

func lpcm(e *mp4.Entry, width int) pcmFormat {
	if e.PacketFrames != 1 || e.Channels <= 0 || e.PacketBytes%e.Channels != 0 {
		return pcmFormat{}
	}
	f := pcmFormat{kind: pcmUnsigned, bytes: width, bigEndian: e.Flags&lpcmBigEndian != 0}
	switch {
	case e.Flags&lpcmFloat != 0:
		f.kind = pcmFloat
	case e.Flags&lpcmSigned != 0:
		f.kind = pcmSigned
	}
	if e.Flags&lpcmPlanes != 0 && e.Channels != 1 {
		return pcmFormat{}
	}
	word := e.PacketBytes / e.Channels // samples may stand in larger ones
	if e.Bits < 1 || word < int64(width) || word > 8 || f.kind == pcmFloat && 8*word != e.Bits {
		return pcmFormat{}
	}
	f.bytes = int(word)
	if e.Flags&(lpcmHigh|lpcmPacked) == 0 {
		f.above = int(8*word - e.Bits)
	}
	return f
}

// pcmCoding is that of PCM. The rate does not fit the entry if it is beyond 65,535 Hz: then it is the timescale.
func (m *mp4File) pcmCoding(f pcmFormat) (mp4Coding, error) {
	e := m.track.Entry
	if !f.known() {
		return mp4Coding{}, unsupported("The audio track is PCM of %d bits in a form that is not supported: %q.", e.Bits, e.Format)
	}
	rate := rateOf(e.Rate)
	if rate == 0 {
		rate = int(min(m.track.Timescale, maxRate+1))
	}
	if err := checkLimits(int64(rate), e.Channels); err != nil {
		return mp4Coding{}, err
	}
	frame := int64(f.bytes) * e.Channels
	if u := m.track.UniformBytes; u > 1 && u%frame != 0 {
		return mp4Coding{}, broken("The samples of the audio track have %d bytes each, which are no whole frames of %d.", u, frame)
	}
	return mp4Coding{codec: pcmCodec(f), rate: rate, channels: int(e.Channels), frameBytes: frame}, nil
}
