package probe

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
)

// AIFF (Apple, "Audio Interchange File Format", 1989) and AIFF-C (1991), whose COMM chunk names a codec.
//
// The rules, where files contradict themselves:
//
//   - One COMM and one SSND chunk, in any order. Other chunks that claim to reach beyond the file are damage.
//   - What SSND holds counts. The number of frames in COMM is a claim, and so is the size of SSND where it reaches beyond the file.
//   - A size that a program wrote who could not come back (0 with bytes behind that are no chunks, or SoX's 0x7F000000) is none, and neither is the
//     number of frames that belongs to it.

func sniffAIFF(head []byte) bool {
	return len(head) >= 12 && string(head[:4]) == "FORM" && (string(head[8:12]) == "AIFF" || string(head[8:12]) == "AIFC")
}

var aiffChunks = chunkLayout{title: "AIFF", idBytes: 4, sizeBytes: 4, order: binary.BigEndian, align: 2}

// aiffCommon is what COMM says.
type aiffCommon struct {
	channels, bits int
	frames         uint32
	rate           int
	compressed     bool   // it is AIFF-C, where
	codec          string // says how
}

func openAIFF(_ context.Context, s *source) (track, error) {
	compressed := string(s.head[8:12]) == "AIFC"
	var common *aiffCommon
	walk, err := aiffChunks.walk(s, 12, "SSND", func(c dataChunk) (err error) {
		switch c.id {
		case "FORM":
			return broken("Another AIFF file follows behind the first.")
		case "COMM":
			if common != nil {
				return broken("The AIFF file has two COMM chunks.")
			}
			common, err = readCOMM(s, c, compressed)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if common == nil {
		return nil, broken("The AIFF file has no COMM chunk.")
	}
	meta := about{container: "aiff", rate: common.rate, channels: common.channels}
	if compressed {
		meta.container = "aifc"
	}
	return common.track(s, walk, meta)
}

func readCOMM(s *source, c dataChunk, compressed bool) (*aiffCommon, error) {
	n := 18
	if compressed {
		n = 22
	}
	b, err := aiffChunks.read(s, c, n)
	if err != nil {
		return nil, err
	}
	rate, ok := extended(b[8:18])
	if !ok {
		return nil, broken("The sample rate in the AIFF file's COMM chunk is not a number that can be one.")
	}
	a := &aiffCommon{
		channels: int(int16(binary.BigEndian.Uint16(b))), frames: binary.BigEndian.Uint32(b[2:]), bits: int(int16(binary.BigEndian.Uint16(b[6:]))),
		rate: int(min(rate, math.MaxInt32)),
	}
	if a.compressed = compressed; compressed {
		a.codec = strings.TrimRight(string(b[18:22]), " ")
	}
	return a, checkLimits(rate, int64(a.channels))
}

// extended reads a number of 80 bits as Apple's SANE and the 8087 have it: a sign, 15 bits of exponent and 64 of a fraction, whose highest bit counts
// 1. The part behind the point is dropped: 22,254.5454 Hz is that of old Macintoshes. It reports false for what is negative, infinite or no number.
func extended(b []byte) (v int64, ok bool) {
	exponent, fraction := int(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint64(b[2:])
	if exponent >= 0x7FFF { // the sign, or all ones
		return 0, false
	}
	shift := 16383 + 63 - exponent
	switch {
	case shift < 0:
		return math.MaxInt64, true
	case shift > 63:
		return 0, true
	}
	return int64(min(fraction>>shift, math.MaxInt64)), true
}

// aiffCodecs are the samples by the names that AIFF-C gives them, without spaces behind; 0 bytes: as many as COMM says.
var aiffCodecs = map[string]pcmFormat{
	"NONE": {bigEndian: true}, "twos": {bigEndian: true}, "sowt": {},
	"in24": {bytes: 3, bigEndian: true}, "in32": {bytes: 4, bigEndian: true}, "raw": {kind: pcmUnsigned, bytes: 1},
	"fl32": {kind: pcmFloat, bytes: 4, bigEndian: true}, "FL32": {kind: pcmFloat, bytes: 4, bigEndian: true},
	"fl64": {kind: pcmFloat, bytes: 8, bigEndian: true}, "FL64": {kind: pcmFloat, bytes: 8, bigEndian: true},
	"alaw": {kind: pcmALaw, bytes: 1}, "ALAW": {kind: pcmALaw, bytes: 1}, "ulaw": {kind: pcmMuLaw, bytes: 1}, "ULAW": {kind: pcmMuLaw, bytes: 1},
}

// aiffOthers names codecs that are not decoded.
var aiffOthers = map[string]string{
	"G722": "G.722 ADPCM", "G726": "G.726 ADPCM", "GSM": "GSM 6.10", "MAC3": "MACE 3:1", "MAC6": "MACE 6:1", "QDMC": "QDesign Music",
	"QDM2": "QDesign Music 2", "Qclp": "Qualcomm PureVoice", "rt24": "RT24", "rt29": "RT29", "ADP4": "Intel DVI ADPCM", "ACE2": "ACE 2:1", "ACE8": "ACE 8:3", "DWVW": "DWVW",
}

func (a *aiffCommon) track(s *source, walk chunkWalk, meta about) (track, error) {
	head, err := aiffDataHead(s, walk)
	if err != nil {
		return nil, err
	}
	e := walk.extent(s, head)
	claimed := int64(a.frames)
	if a.frames == 0 {
		claimed = unknown
	}
	if e.claimed > e.bytes && isAIFFPlaceholder(walk.data.size) {
		e.claimed = unknown
	}
	if a.codec == "ima4" {
		return a.ima4(s, e, meta, claimed)
	}
	f, err := a.format()
	if err != nil {
		return nil, err
	}
	if frame := int64(f.bytes * a.channels); e.claimed == unknown && claimed > e.bytes/frame && isAIFFPlaceholder(claimed*frame) {
		claimed = unknown
	}
	return e.track(s, f, meta, claimed), nil
}

// aiffDataHead is how many bytes of SSND stand before the samples: 8, and as many as the first field says, which is for alignment.
func aiffDataHead(s *source, walk chunkWalk) (int64, error) {
	const head = 8
	if s.size-walk.data.body < head {
		return 0, broken("The AIFF file ends at the start of its data.")
	}
	var b [4]byte
	if err := s.bytes(b[:], walk.data.body); err != nil {
		return 0, err
	}
	offset := int64(binary.BigEndian.Uint32(b[:]))
	if offset > s.size-walk.data.body-head {
		return 0, broken("The samples of the AIFF file start %d bytes into its data, which it does not have.", offset)
	}
	return head + offset, nil
}

// isAIFFPlaceholder knows sizes of programs who could not come back, SoX among them. The next size up is that of 8 bytes more, or of a part of a frame less.
func isAIFFPlaceholder(size int64) bool {
	const sox, page = 0x7F000000, 4096
	return size >= sox-page && size <= sox+page || size <= math.MaxUint32 && isPlaceholder(uint32(size))
}

// format is how samples are written.
func (a *aiffCommon) format() (pcmFormat, error) {
	f, ok := pcmFormat{bigEndian: true}, true
	if a.compressed {
		f, ok = aiffCodecs[a.codec]
	}
	if !ok {
		if name := aiffOthers[a.codec]; name != "" {
			return f, unsupported("The AIFF-C file's samples are %s, which is not supported.", name)
		}
		return f, unsupported("The AIFF-C file's samples are coded in an unknown way, %q.", a.codec)
	}
	if f.bytes == 0 {
		if f.bytes = (a.bits + 7) / 8; a.bits < 8 || a.bits > 32 {
			return f, broken("The COMM chunk of the AIFF file gives %d bits per sample.", a.bits)
		}
	}
	return f, nil
}

// ima4 makes a track of ADPCM. COMM counts its blocks as frames; some writers count samples.
func (a *aiffCommon) ima4(s *source, e pcmExtent, meta about, claimed int64) (track, error) {
	c, err := quickTimeCoding(a.channels)
	if err != nil {
		return nil, err
	}
	st := e.stream(s, c, meta)
	if held := c.frames(e.bytes); claimed != unknown && st.claimed <= held { // else it is refused for that
		if st.claimed = claimed; claimed != held {
			st.claimed = claimed * int64(c.blockFrames)
		}
	}
	return newCodedTrack(s, st)
}
