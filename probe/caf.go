package probe

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
)

// CAF, Apple's Core Audio Format (Apple, "Core Audio Format Specification 1.0", 2006): a desc chunk with numbers about the samples, a data chunk and, for
// packets that are not all of one size, a pakt chunk with their sizes.
//
// The rules, where files contradict themselves:
//
//   - One desc, one data, at most one pakt and one kuki chunk, in any order. Chunks that claim to reach beyond the file are damage, but for the data.
//   - A data chunk of size -1 reaches to the end of the file, and so does one of size 0 with bytes behind it that are no chunks.
//   - PCM: what is there counts, and the size of the data is a claim.
//   - Packets: those of the table count, all of which must lie within the data. How many samples each has is told by the codec, not by the desc chunk;
//     where both say so, they must agree. The table's number of valid frames is a claim; it trims the end where it agrees with the other numbers.

func sniffCAF(head []byte) bool { return len(head) >= 8 && string(head[:4]) == "caff" }

var cafChunks = chunkLayout{title: "CAF", idBytes: 4, sizeBytes: 8, order: binary.BigEndian, align: 1}

// cafFile is what its chunks say.
type cafFile struct {
	source     *source
	desc       *cafDescription
	kuki, pakt dataChunk // without an id: there is none
	data       pcmExtent
}

// cafDescription is the desc chunk.
type cafDescription struct {
	rate         int
	format       string // without spaces behind
	flags        uint32
	packetBytes  int64 // 0: packets differ
	packetFrames int64 // 0: packets differ
	channels     int
	bits         int
}

func openCAF(_ context.Context, s *source) (track, error) {
	if version := binary.BigEndian.Uint16(s.head[4:]); version != 1 {
		return nil, unsupported("The CAF file has version %d, which is not known.", version)
	}
	f := &cafFile{source: s}
	walk, err := cafChunks.walk(s, 8, "data", f.visit)
	if err != nil {
		return nil, err
	}
	if f.desc == nil {
		return nil, broken("The CAF file has no desc chunk.")
	}
	const editCountBytes = 4
	f.data = walk.extent(s, editCountBytes)
	switch f.desc.format {
	case "lpcm", "alaw", "ulaw":
		return f.pcm()
	case "ima4":
		return f.ima4()
	}
	return f.packets()
}

func (f *cafFile) visit(c dataChunk) (err error) {
	twice := false
	switch c.id {
	case "caff":
		return broken("Another CAF file follows behind the first.")
	case "desc":
		twice = f.desc != nil
		f.desc, err = f.description(c)
	case "kuki":
		twice, f.kuki = f.kuki.id != "", c
	case "pakt":
		twice, f.pakt = f.pakt.id != "", c
	}
	if twice {
		return broken("The CAF file has two %q chunks.", c.id)
	}
	return err
}

func (f *cafFile) description(c dataChunk) (*cafDescription, error) {
	b, err := cafChunks.read(f.source, c, 32)
	if err != nil {
		return nil, err
	}
	field := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	rate := math.Float64frombits(binary.BigEndian.Uint64(b))
	if !(rate >= 0 && rate < math.MaxInt32) { // NaN is not
		return nil, broken("The sample rate in the CAF file's desc chunk is not a number that can be one.")
	}
	d := &cafDescription{
		rate: int(rate), format: strings.TrimRight(string(b[8:12]), " "), flags: field(12), packetBytes: int64(field(16)), packetFrames: int64(field(20)),
		channels: int(min(field(24), math.MaxInt32)), bits: int(min(field(28), math.MaxInt32)),
	}
	return d, checkLimits(int64(d.rate), int64(d.channels))
}

// about is what all tracks have.
func (f *cafFile) about() about {
	return about{container: "caf", rate: f.desc.rate, channels: f.desc.channels, claimed: unknown}
}

// Flags of lpcm.
const (
	cafFloat        = 1
	cafLittleEndian = 2
)

// pcm makes a track of samples that are not coded. Those narrower than their bytes stand in the upper part.
func (f *cafFile) pcm() (track, error) {
	d := f.desc
	format, narrowest := pcmFormat{bytes: int(min(d.packetBytes/int64(d.channels), math.MaxInt32))}, 8
	switch d.format {
	case "alaw":
		format.kind = pcmALaw
	case "ulaw":
		format.kind = pcmMuLaw
	default:
		format.bigEndian = d.flags&cafLittleEndian == 0
		if d.flags&cafFloat != 0 {
			format.kind, narrowest = pcmFloat, 8*format.bytes
		}
		if d.bits < narrowest || d.bits > 8*format.bytes {
			return nil, broken("The CAF file's desc chunk gives %d bits per sample in %d bytes.", d.bits, format.bytes)
		}
	}
	if !format.known() || d.packetBytes != int64(format.bytes*d.channels) || d.packetFrames > 1 {
		return nil, broken("The CAF file's desc chunk gives packets of %d bytes and %d frames, which %d channels of %q do not have.",
			d.packetBytes, d.packetFrames, d.channels, d.format)
	}
	return f.data.track(f.source, format, f.about(), unknown), nil
}

// ima4 makes a track of ADPCM in blocks.
func (f *cafFile) ima4() (track, error) {
	c, err := quickTimeCoding(f.desc.channels)
	if err != nil {
		return nil, err
	}
	if f.desc.packetBytes != int64(c.blockBytes) || f.desc.packetFrames != int64(c.blockFrames) {
		return nil, broken("The CAF file's desc chunk gives packets of %d bytes and %d frames, which ADPCM with %d channels does not have.",
			f.desc.packetBytes, f.desc.packetFrames, f.desc.channels)
	}
	return newCodedTrack(f.source, f.data.stream(f.source, c, f.about()))
}
