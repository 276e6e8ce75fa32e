package mp4

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Entry is a sample entry of an audio track: how its samples are coded (ISO 14496-12, section 12.2.3; QuickTime File Format, Sound Sample
// Descriptions). Its numbers are often wrong where the codec's own setup has them too.
type Entry struct {
	Format   string // four characters: "mp4a"
	Channels int64
	Bits     int64   // per sample
	Rate     float64 // Hz; 0 where it does not fit
	Flags    uint32  // of QuickTime's lpcm: see there

	// From QuickTime, for codecs whose packets all have one size; otherwise 0.
	PacketFrames, PacketBytes int64

	reference uint16 // the number of the data reference
	children  []byte
}

// maxEntryBytes bounds a sample entry: the largest are the headers of Vorbis, some kB.
const maxEntryBytes = 64 << 10

// entryBox finds a sample entry by its number, from 1.
func (t *Track) entryBox(number uint32) (box, error) {
	stsd := t.boxes["stbl/stsd"]
	if stsd.kind == "" || stsd.bytes() < 8 {
		return box{}, damaged("The audio track has no stsd box.")
	}
	list := stsd
	list.body += 8
	var found box
	i := uint32(0)
	err := t.file.children(list, func(b box) error {
		if i++; i == number {
			found = b
		}
		return nil
	})
	if err == nil && found.kind == "" {
		err = damaged("The audio track refers to sample entry %d of %d.", number, i)
	}
	return found, err
}

// entry reads a sample entry.
func (f *File) entry(b, stsd box) (*Entry, error) {
	if b.bytes() > maxEntryBytes {
		return nil, damaged("The sample entry %q of the audio track has %d bytes.", b.kind, b.bytes())
	}
	if b.bytes() < 28 {
		return nil, damaged("The sample entry %q of the audio track is too short.", b.kind)
	}
	version, err := f.version(stsd)
	if err != nil {
		return nil, err
	}
	h, err := f.win.Bytes(b.body, int(b.bytes()))
	if err != nil {
		return nil, err
	}
	h = bytes.Clone(h)
	e := &Entry{
		Format:    b.kind,
		reference: binary.BigEndian.Uint16(h[6:]),
		Channels:  int64(binary.BigEndian.Uint16(h[16:])),
		Bits:      int64(binary.BigEndian.Uint16(h[18:])),
		Rate:      float64(binary.BigEndian.Uint32(h[24:])) / (1 << 16),
	}
	revision := binary.BigEndian.Uint16(h[8:])
	rest := h[28:]
	switch {
	case revision == 1 && version == 0: // QuickTime
		if len(rest) < 16 {
			return nil, damaged("The sample entry %q of the audio track is too short.", b.kind)
		}
		e.PacketFrames = int64(binary.BigEndian.Uint32(rest))
		e.PacketBytes = int64(binary.BigEndian.Uint32(rest[8:])) // of all channels
		rest = rest[16:]
	case revision == 2 && version == 0:
		if len(rest) < 36 {
			return nil, damaged("The sample entry %q of the audio track is too short.", b.kind)
		}
		e.Rate = math.Float64frombits(binary.BigEndian.Uint64(rest[4:]))
		e.Channels = int64(binary.BigEndian.Uint32(rest[12:]))
		e.Bits = int64(binary.BigEndian.Uint32(rest[20:]))
		e.Flags = binary.BigEndian.Uint32(rest[24:])
		e.PacketBytes = int64(binary.BigEndian.Uint32(rest[28:]))
		e.PacketFrames = int64(binary.BigEndian.Uint32(rest[32:]))
		rest = rest[36:]
	}
	e.children = rest
	if b := e.Box("srat"); len(b) >= 8 { // section 12.2.3.2
		e.Rate = float64(binary.BigEndian.Uint32(b[4:]))
	}
	return e, nil
}

// Box is the content of a box in the entry, or in its QuickTime wave box; nil if there is none.
func (e *Entry) Box(kind string) []byte {
	if b := find(e.children, kind); b != nil {
		return b
	}
	return find(find(e.children, "wave"), kind)
}

// find is the content of a box in b; nil if there is none. What is no box ends the search.
func find(b []byte, kind string) []byte {
	for len(b) >= 8 {
		size := binary.BigEndian.Uint32(b)
		if size < 8 || uint64(size) > uint64(len(b)) {
			return nil
		}
		if string(b[4:8]) == kind {
			return b[8:size]
		}
		b = b[size:]
	}
	return nil
}

// Descriptor is what an esds box says of a codec (ISO 14496-1, section 7.2.6).
type Descriptor struct {
	ObjectType byte   // the codec: 0x40 is AAC (table 5)
	Setup      []byte // the decoder specific info; nil if there is none
}

// Descriptor reads the esds box.
func (e *Entry) Descriptor() (Descriptor, error) {
	b := e.Box("esds")
	if len(b) < 4 {
		return Descriptor{}, damaged("The sample entry %q of the audio track has no esds box.", e.Format)
	}
	return ParseDescriptor(b[4:])
}

// ParseDescriptor reads an ES descriptor: what stands behind the version in an esds box, and by itself in other containers.
func ParseDescriptor(b []byte) (Descriptor, error) {
	cut := damaged("The MPEG-4 descriptor of the audio track is cut off.")
	es := descriptor(b, 3)
	if len(es) < 3 {
		return Descriptor{}, cut
	}
	flags, at := es[2], 3
	if flags&0x80 != 0 { // depends on another stream
		at += 2
	}
	if flags&0x40 != 0 && at < len(es) { // a URL
		at += 1 + int(es[at])
	}
	if flags&0x20 != 0 { // takes its clock from another stream
		at += 2
	}
	if at > len(es) {
		return Descriptor{}, cut
	}
	config := descriptor(es[at:], 4)
	if len(config) < 13 {
		return Descriptor{}, cut
	}
	return Descriptor{ObjectType: config[0], Setup: descriptor(config[13:], 5)}, nil
}

// descriptor is the content of the first descriptor with the given tag in b; nil if there is none. One that claims more bytes than there are
// has those that are there: some writers count wrong.
func descriptor(b []byte, tag byte) []byte {
	for len(b) >= 2 {
		kind, size, at := b[0], 0, 1
		for at < len(b) && at <= 4 { // the size: seven bits a byte
			size = size<<7 | int(b[at]&0x7F)
			at++
			if b[at-1]&0x80 == 0 {
				break
			}
		}
		end := min(at+size, len(b))
		if kind == tag {
			return b[at:end]
		}
		b = b[end:]
	}
	return nil
}
