// Package flac reads the frames of a FLAC stream (RFC 9639): it counts their samples without decoding them, or decodes them. It knows
// neither metadata blocks, but for STREAMINFO, nor containers: whoever holds the bytes of frames can use it. It also writes mono files: see Encoder.
//
// The Decoder is written for bytes from strangers. It holds a window of 64 kB and, when decoding, one frame (at most 65,536 x 8 samples); it
// allocates nothing by a claim of the stream; the cost of counting is linear in the bytes, not in the samples (a constant subframe of any length
// costs ten bytes); every frame is held against its checksums and against STREAMINFO. It covers what the format has: 4 to 32 bits, 1 to 8
// channels, all predictors and residual codings. Sample counts of the stream's header are never believed.
package flac

import (
	"errors"
	"fmt"
	"io"
)

// The ways in which frames end, besides io.EOF after a whole frame and errors of the reader underneath.
var (
	// ErrNoFrame says that what follows the last frame does not start like a frame. It is not consumed.
	ErrNoFrame = errors.New("flac: no frame here")
	// ErrDamaged says that a frame started and was wrong.
	ErrDamaged = errors.New("flac: damaged frame")
	// ErrMismatch says that a frame differs from STREAMINFO in rate, channels or bits.
	ErrMismatch = errors.New("flac: frame differs from the stream's header")

	errCut = fmt.Errorf("%w: the input ends within it", ErrDamaged)
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Decoder reads frame after frame. It is not safe for concurrent use.
type Decoder struct {
	info    StreamInfo
	bits    *bitReader
	offset  int64
	samples [8][]int64
	decoded int // sample frames in samples
}

// NewDecoder reads frames from r, which starts with the first.
func NewDecoder(r io.Reader, info StreamInfo) *Decoder {
	return &Decoder{info: info, bits: newBitReader(r)}
}

// Reset starts over with the frames of r, in the same memory: for containers that keep each frame in a packet.
func (d *Decoder) Reset(r io.Reader) {
	*d.bits = bitReader{src: r, buf: d.bits.buf}
	d.offset, d.decoded = 0, 0
}

// Offset is the number of bytes read as whole frames.
func (d *Decoder) Offset() int64 { return d.offset }

// Skip reads a frame without decoding it and returns how many samples it has per channel. It finds the same faults as Next.
func (d *Decoder) Skip() (int, error) { return d.frame(false) }

// Next decodes a frame and returns how many samples it has per channel.
func (d *Decoder) Next() (int, error) { return d.frame(true) }

// Samples are one channel's samples of the frame that Next decoded, valid until the next call. Values of damaged or hostile streams can lie
// outside the stream's bits.
func (d *Decoder) Samples(channel int) []int64 { return d.samples[channel][:d.decoded] }

func (d *Decoder) frame(decode bool) (int, error) {
	r := d.bits
	d.decoded = 0
	whole := r.have(MaxHeaderBytes * 8)
	switch {
	case r.err != nil:
		return 0, r.err
	case !whole && r.pos == r.end:
		return 0, io.EOF
	}
	h, length, ok := ParseHeader(r.buf[r.pos/8:min(r.pos/8+MaxHeaderBytes, r.end/8)], d.info)
	if !ok {
		return 0, ErrNoFrame
	}
	if h.Rate != d.info.Rate || h.Channels != d.info.Channels || h.Bits != d.info.Bits {
		return 0, fmt.Errorf("%w: it has %d Hz, %d channels, %d bits instead of %d, %d, %d", ErrMismatch,
			h.Rate, h.Channels, h.Bits, d.info.Rate, d.info.Channels, d.info.Bits)
	}
	r.startCRC()
	r.pos += length * 8
	for c := range h.Channels {
		if err := d.channel(h, c, decode); err != nil {
			return 0, err
		}
	}
	r.align()
	sum := r.sum()
	if want := r.read(16); r.err != nil {
		return 0, r.err
	} else if uint64(sum) != want {
		return 0, damaged("checksum %04x instead of %04x", sum, want)
	}
	d.offset = r.offset()
	if decode {
		d.decoded = h.Block
		join(h.Stereo, d.Samples(0), d.Samples(h.Channels-1))
	}
	return h.Block, nil
}

// channel reads the subframe of channel c.
func (d *Decoder) channel(h Header, c int, decode bool) error {
	width := uint(h.Bits)
	if h.Stereo == SideRight && c == 0 || (h.Stereo == LeftSide || h.Stereo == MidSide) && c == 1 {
		width++
	}
	if !decode {
		return d.subframe(nil, h.Block, width)
	}
	if cap(d.samples[c]) < h.Block {
		d.samples[c] = make([]int64, h.Block)
	}
	d.samples[c] = d.samples[c][:h.Block]
	return d.subframe(d.samples[c], h.Block, width)
}

// join makes left and right of two channels in place (RFC 9639, section 4.2).
func join(s Stereo, a, b []int64) {
	switch s {
	case Independent:
	case LeftSide:
		for i, side := range b {
			b[i] = a[i] - side
		}
	case SideRight:
		for i, side := range a {
			a[i] = b[i] + side
		}
	case MidSide:
		for i, side := range b {
			mid := a[i]<<1 | side&1 // the bit that the halving lost is the side's last
			a[i], b[i] = (mid+side)>>1, (mid-side)>>1
		}
	}
}
