package probe

import "bytes"

// mp4Box is a box with its true size.
func mp4Box(kind string, parts ...any) []byte {
	body := put(be, parts...)
	return put(be, uint32(len(body)+8), kind, body)
}

// mp4Full is a box with a version and flags of 0.
func mp4Full(kind string, parts ...any) []byte {
	return mp4Box(kind, append([]any{uint32(0)}, parts...)...)
}

// mp4Parts are the boxes of a file with one audio track: each can be replaced.
type mp4Parts struct {
	ftyp, mvhd, tkhd, elst, mdhd, hdlr, dref, stsd, stts, stsc, stsz, stco []byte

	more   []byte // in moov, behind the track
	media  []byte // in mdat
	behind []byte // at the end of the file
	first  bool   // moov stands before mdat
}

// silentAAC is a packet of mono AAC that decodes to 1,024 zeros.
const silentAAC = "\x01\x18\x20\x07"

// aacMP4 is a file of so many packets at 8 kHz, in which all numbers agree.
func aacMP4(packets int) mp4Parts {
	ticks := uint32(packets * 1024)
	return mp4Parts{
		ftyp:  mp4Box("ftyp", "M4A ", uint32(0), "M4A isom"),
		mvhd:  mp4Full("mvhd", uint64(0), uint32(8000), ticks, make([]byte, 80)),
		tkhd:  mp4Full("tkhd", uint64(0), uint32(1), uint32(0), ticks, make([]byte, 60)),
		mdhd:  mp4Full("mdhd", uint64(0), uint32(8000), ticks, uint32(0)),
		hdlr:  mp4Full("hdlr", uint32(0), "soun", make([]byte, 13)),
		dref:  mp4Full("dref", uint32(1), mp4Box("url ", uint32(1))),
		stsd:  mp4Full("stsd", uint32(1), mp4Entry("mp4a", 1, 16, 8000, esds(0x40, "\x15\x88"))),
		stts:  mp4Full("stts", uint32(1), uint32(packets), uint32(1024)),
		stsc:  mp4Full("stsc", uint32(1), uint32(1), uint32(packets), uint32(1)),
		stsz:  mp4Full("stsz", uint32(len(silentAAC)), uint32(packets)),
		media: bytes.Repeat([]byte(silentAAC), packets),
	}
}

// mp4Entry is a sample entry.
func mp4Entry(format string, channels, bits, rate int, boxes ...any) []byte {
	return mp4Box(format, append([]any{make([]byte, 6), uint16(1), uint64(0), uint16(channels), uint16(bits), uint32(0), uint32(rate << 16)}, boxes...)...)
}

// esds describes a codec.
func esds(object byte, setup string) []byte {
	info := put(be, []byte{5, byte(len(setup))}, setup)
	config := put(be, []byte{4, byte(13 + len(info)), object, 0x15}, make([]byte, 11), info)
	return mp4Full("esds", []byte{3, byte(3 + len(config)), 0, 1, 0}, config)
}

// mediaAt is where the media of a file starts.
func (p mp4Parts) mediaAt() int {
	if p.first {
		return len(p.ftyp) + len(p.moov(0)) + 8
	}
	return len(p.ftyp) + 8
}

func (p mp4Parts) moov(mediaAt int) []byte {
	stco := p.stco
	if stco == nil {
		stco = mp4Full("stco", uint32(1), uint32(mediaAt))
	}
	edts := []byte(nil)
	if p.elst != nil {
		edts = mp4Box("edts", p.elst)
	}
	stbl := mp4Box("stbl", p.stsd, p.stts, p.stsc, p.stsz, stco)
	minf := mp4Box("minf", mp4Full("smhd", uint32(0)), mp4Box("dinf", p.dref), stbl)
	return mp4Box("moov", p.mvhd, mp4Box("trak", p.tkhd, edts, mp4Box("mdia", p.mdhd, p.hdlr, minf)), p.more)
}

func (p mp4Parts) file() []byte {
	moov, mdat := p.moov(p.mediaAt()), mp4Box("mdat", p.media)
	if p.first {
		return put(be, p.ftyp, moov, mdat, p.behind)
	}
	return put(be, p.ftyp, mdat, moov, p.behind)
}

// fragmented empties the tables of a file and puts fragments behind it.
func (p mp4Parts) fragmented(mvex []byte, fragments ...[]byte) mp4Parts {
	p.mvhd = mp4Full("mvhd", uint64(0), uint32(8000), uint32(0), make([]byte, 80))
	p.mdhd = mp4Full("mdhd", uint64(0), uint32(8000), uint32(0), uint32(0))
	p.stts, p.stsc, p.stsz = mp4Full("stts", uint32(0)), mp4Full("stsc", uint32(0)), mp4Full("stsz", uint64(0))
	p.stco = mp4Full("stco", uint32(0))
	p.more = mvex
	p.media = nil
	p.behind = bytes.Join(fragments, nil)
	return p
}

// trex says what samples of the fragments of track 1 have by default.
func trex(ticks, size uint32) []byte {
	return mp4Box("mvex", mp4Full("trex", uint32(1), uint32(1), ticks, size, uint32(0)))
}

// Flags of tfhd and trun (ISO 14496-12, sections 8.8.7 and 8.8.8).
const (
	tfhdTicks, tfhdBytes, tfhdDescription, tfhdBaseIsMoof                         = 0x8, 0x10, 0x2, 0x20000
	trunOffset, trunFirstFlags, trunTicks, trunBytes, trunFlags, trunShift uint32 = 0x1, 0x4, 0x100, 0x200, 0x400, 0x800
)

// mp4Flagged is a box with flags.
func mp4Flagged(kind string, flags uint32, parts ...any) []byte {
	return mp4Box(kind, append([]any{flags}, parts...)...)
}

// moof is a fragment, whose media follows behind. trafs are made of how far the media is from the start of the fragment.
func moof(media string, trafs func(at uint32) []byte) []byte {
	header := mp4Full("mfhd", uint32(1))
	size := len(mp4Box("moof", header, trafs(0)))
	return put(be, mp4Box("moof", header, trafs(uint32(size+8))), mp4Box("mdat", media))
}
