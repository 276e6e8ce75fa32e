package probe

import (
	"context"
	"encoding/binary"
	"math"
)

// AU, also called SND: a header of six numbers, an annotation, and samples (Sun and NeXT; described in the manual page au(5) of SunOS).
//
// A size of all ones is unknown, and 0 with bytes behind is that of a recorder that died: the data reaches to the end of the file. Any other size
// is a claim, and bytes behind it count as audio that the header conceals.

func sniffAU(head []byte) bool { return len(head) >= 4 && string(head[:4]) == ".snd" }

const auHeaderBytes = 24

// auFormats are the encodings that are decoded.
var auFormats = map[uint32]pcmFormat{
	1: {kind: pcmMuLaw, bytes: 1}, 2: {bytes: 1}, 3: {bytes: 2, bigEndian: true}, 4: {bytes: 3, bigEndian: true}, 5: {bytes: 4, bigEndian: true},
	6: {kind: pcmFloat, bytes: 4, bigEndian: true}, 7: {kind: pcmFloat, bytes: 8, bigEndian: true}, 27: {kind: pcmALaw, bytes: 1},
}

// auOthers names encodings that are not decoded.
var auOthers = map[uint32]string{23: "G.721 ADPCM", 24: "G.722 ADPCM", 25: "G.723 ADPCM", 26: "G.723 ADPCM"}

func openAU(_ context.Context, s *source) (track, error) {
	var h [auHeaderBytes]byte
	if s.size < int64(len(h)) {
		return nil, broken("The AU file ends within its header.")
	}
	if err := s.bytes(h[:], 0); err != nil {
		return nil, err
	}
	field := func(i int) uint32 { return binary.BigEndian.Uint32(h[4*i:]) }
	at, size, encoding, rate, channels := int64(field(1)), field(2), field(3), int64(field(4)), int64(field(5))
	if err := checkLimits(rate, channels); err != nil {
		return nil, err
	}
	f, ok := auFormats[encoding]
	if !ok {
		if name := auOthers[encoding]; name != "" {
			return nil, unsupported("The AU file's samples are %s, which is not supported.", name)
		}
		return nil, unsupported("The AU file's samples are coded in an unknown way, number %d.", encoding)
	}
	if at < auHeaderBytes || at > s.size {
		return nil, broken("The samples of the AU file start at byte %d of %d.", at, s.size)
	}
	e := pcmExtent{at: at, bytes: s.size - at, claimed: unknown}
	if size != math.MaxUint32 && (size != 0 || e.bytes == 0) {
		e.claimed = int64(size)
		e.bytes = min(e.bytes, e.claimed)
		e.hidden = s.size - at - e.bytes
	}
	return e.track(s, f, about{container: "au", rate: int(rate), channels: int(channels)}, unknown), nil
}
