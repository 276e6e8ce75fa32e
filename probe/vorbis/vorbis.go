// Package vorbis decodes the packets of Vorbis audio (Vorbis I specification, https://xiph.org/vorbis/doc/Vorbis_I_spec.html), and counts their
// samples without decoding them. It knows no containers, and takes no notice of comments.
//
// It is written for bytes from strangers. Headers are checked as a whole before anything is allocated for them: every prefix code must be complete,
// every number of a codebook, floor, residue or mapping must exist, and the codebooks of a stream may have no more than MaxEntries entries and
// MaxValues values, which is many times what encoders write. Beyond that a header costs nothing but its own bytes. A packet costs time in
// proportion to its bytes and its block, and no memory.
package vorbis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// The ways in which headers and packets are refused.
var (
	// ErrDamaged says that a header or a packet is none, or contradicts itself.
	ErrDamaged = errors.New("vorbis: damaged")
	// ErrTooLarge says that a header is beyond what this package allocates for.
	ErrTooLarge = errors.New("vorbis: too large")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// The most that the codebooks of a stream may have together.
const (
	MaxEntries = 1 << 17
	MaxValues  = 1 << 19 // 2 MB
)

// Info is what the headers say that matters for counting.
type Info struct {
	Rate     int // Hz, at least 1
	Channels int // 1 to 255

	blocks [2]int // sample frames of a short and of a long block, powers of two from 64 to 8,192
	long   []bool // by mode
}

// IsHeader reports whether a packet is a header of the given type: 1 (identification), 3 (comments) or 5 (setup).
func IsHeader(packet []byte, kind byte) bool {
	return len(packet) >= 7 && packet[0] == kind && string(packet[1:7]) == "vorbis"
}

// ParseIdentification reads the first header packet (section 4.2.2).
func ParseIdentification(packet []byte) (Info, error) {
	if !IsHeader(packet, 1) || len(packet) < 30 {
		return Info{}, damaged("no identification header")
	}
	b := packet[7:]
	info := Info{
		Channels: int(b[4]),
		Rate:     int(binary.LittleEndian.Uint32(b[5:])),
		blocks:   [2]int{1 << (b[21] & 15), 1 << (b[21] >> 4)},
	}
	switch {
	case binary.LittleEndian.Uint32(b) != 0:
		return info, damaged("version %d", binary.LittleEndian.Uint32(b))
	case info.Channels == 0:
		return info, damaged("0 channels")
	case info.Rate == 0:
		return info, damaged("a sample rate of 0")
	case info.blocks[0] < 64 || info.blocks[1] > 8192 || info.blocks[0] > info.blocks[1]:
		return info, damaged("blocks of %d and %d", info.blocks[0], info.blocks[1])
	case b[22]&1 == 0:
		return info, damaged("the identification header has no end")
	}
	return info, nil
}

// ParseInfo reads and checks the first and the third header packet. It refuses what NewDecoder refuses.
func ParseInfo(identification, setup []byte) (Info, error) {
	info, err := ParseIdentification(identification)
	if err != nil {
		return info, err
	}
	p := setupParser{info: info}
	err = p.parse(setup)
	return p.info, err
}

// Block is the length of a packet's block in sample frames. A packet gives a quarter of the block before it and a quarter of its own; the first
// one of a stream gives nothing.
func (i *Info) Block(packet []byte) (int, error) {
	r := bitReader{b: packet}
	mode, err := i.mode(&r)
	if err != nil {
		return 0, err
	}
	return i.blocks[b2i(i.long[mode])], nil
}

// mode reads the start of an audio packet (section 4.3.1).
func (i *Info) mode(r *bitReader) (int, error) {
	if r.flag() {
		return 0, damaged("a packet that is not audio")
	}
	mode := r.read(ilog(len(i.long) - 1))
	if r.ended || mode >= len(i.long) {
		return 0, damaged("a packet of a mode that does not exist")
	}
	return mode, nil
}

// ilog is the number of bits of v (section 9.2.1).
func ilog(v int) int { return bits.Len(uint(v)) }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
