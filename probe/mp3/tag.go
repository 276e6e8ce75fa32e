package mp3

import "encoding/binary"

// Tag is what an encoder says about a file in its first frame, which holds no audio.
type Tag struct {
	Frames int64 // in the file, besides this one; 0 if the tag does not say
	// Delay and Padding are the samples that the encoder put before and behind the audio. They mean something only with Trimmed: LAME and
	// those who follow it tell them.
	Delay, Padding int
	Trimmed        bool
}

// DecoderDelay is by how many samples a decoder's output is late, which a Tag's Delay does not include.
const DecoderDelay = 529

// TagBytes is how much of a frame ParseTag looks at, at most.
const TagBytes = HeaderBytes + 2 + 32 + 156

// Where the parts of a tag lie: the flags of Xing's tell which are there (the format has no standard; LAME's source describes it).
const (
	xingFrames = 1 << iota
	xingBytes
	xingSeeking
	xingQuality
)

// ParseTag finds the tag in the start of a frame: Xing's, of which LAME's is an extension, or Fraunhofer's (VBRI).
func ParseTag(h Header, frame []byte) (t Tag, ok bool) {
	if h.Layer != 3 {
		return Tag{}, false
	}
	if b := from(frame, HeaderBytes+32); len(b) >= 18 && string(b[:4]) == "VBRI" {
		return Tag{Frames: int64(binary.BigEndian.Uint32(b[14:]))}, true
	}
	b := from(frame, HeaderBytes+h.sideBytes())
	if !isXing(b) { // some leave room for a checksum
		b = from(frame, h.sideAt()+h.sideBytes())
	}
	if !isXing(b) {
		return Tag{}, false
	}
	flags := binary.BigEndian.Uint32(b[4:])
	b = b[8:]
	if flags&xingFrames != 0 && len(b) >= 4 {
		t.Frames = int64(binary.BigEndian.Uint32(b))
	}
	for _, part := range []struct {
		flag  uint32
		bytes int
	}{{xingFrames, 4}, {xingBytes, 4}, {xingSeeking, 100}, {xingQuality, 4}} {
		if flags&part.flag != 0 {
			b = from(b, part.bytes)
		}
	}
	if len(b) >= 24 && encodersWithDelay[string(b[:4])] {
		v := int(b[21])<<16 | int(b[22])<<8 | int(b[23])
		t.Delay, t.Padding, t.Trimmed = v>>12, v&0xFFF, true
	}
	return t, true
}

// encodersWithDelay are the names behind which the delay is known to follow.
var encodersWithDelay = map[string]bool{"LAME": true, "Lavf": true, "Lavc": true}

// from is b without its first n bytes.
func from(b []byte, n int) []byte { return b[min(n, len(b)):] }

func isXing(b []byte) bool {
	return len(b) >= 8 && (string(b[:4]) == "Xing" || string(b[:4]) == "Info")
}
