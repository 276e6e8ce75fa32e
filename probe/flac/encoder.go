package flac

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/bits"
)

// EncoderBlock is how many samples a frame of an Encoder holds; the last may hold fewer.
const EncoderBlock = 4096

// StreamInfoOffset is where the body of STREAMINFO stands in a file: behind the magic number and the block's header.
const StreamInfoOffset = 8

// Encoder writes a mono FLAC file that keeps to the streamable subset (RFC 9639, section 7): frames of EncoderBlock samples, of which each is
// as good as constant, fixed or linear predictors of low order and partitioned Rice codes make it. It is not safe for concurrent use.
//
// Since the output need not be seekable, the file starts with a STREAMINFO that does not know how much will follow. It is valid as it is; what
// Close returns makes it complete.
type Encoder struct {
	w    io.Writer
	err  error // the first failure: it sticks
	info StreamInfo
	md5  hash.Hash

	pending [EncoderBlock]int32 // the samples of the next frame
	n       int                 // how many there are
	frames  uint64              // written so far

	coder subframeCoder
	out   packer
	raw   [EncoderBlock * 4]byte // the samples as they go into the MD5
}

// NewEncoder starts a file of samples with 16 or 24 bits at a rate that frame headers can hold: all up to 65,535 Hz, and beyond that multiples of
// 10 Hz up to 655,350 Hz. It writes the header.
func NewEncoder(w io.Writer, rate, bits int) (*Encoder, error) {
	e := &Encoder{w: w, md5: md5.New(), info: StreamInfo{MinBlock: EncoderBlock, MaxBlock: EncoderBlock, Rate: rate, Channels: 1, Bits: bits}}
	if bits != 16 && bits != 24 {
		return nil, fmt.Errorf("flac: samples of %d bits cannot be encoded", bits)
	}
	if _, _, ok := rateCode(rate); !ok {
		return nil, fmt.Errorf("flac: a rate of %d Hz cannot be encoded", rate)
	}
	const vendor = "aviary"
	body := e.info.Bytes()
	head := append([]byte("fLaC"), 0, 0, 0, StreamInfoBytes)
	head = append(head, body[:]...)
	head = append(head, 0x80|4, 0, 0, 4+byte(len(vendor))+4) // VORBIS_COMMENT, the last block: decoders expect a vendor
	head = binary.LittleEndian.AppendUint32(head, uint32(len(vendor)))
	head = append(head, vendor...)
	head = binary.LittleEndian.AppendUint32(head, 0) // comments
	if _, err := w.Write(head); err != nil {
		return nil, fmt.Errorf("flac: write the header: %w", err)
	}
	return e, nil
}

// maxSamples is what STREAMINFO can count.
const maxSamples = 1<<36 - 1

var (
	errClosed  = errors.New("flac: the encoder is closed")
	errTooLong = fmt.Errorf("flac: more than %d samples", int64(maxSamples))
)

// Write encodes samples, any number at a time. They must lie within the stream's bits. After an error, which is the writer's or about the
// samples, the file is not to be used.
func (e *Encoder) Write(samples []int32) error {
	if e.err != nil {
		return e.err
	}
	if int64(len(samples)) > maxSamples-e.info.Samples {
		e.err = errTooLong
		return e.err
	}
	e.info.Samples += int64(len(samples))
	for len(samples) > 0 && e.err == nil {
		n := copy(e.pending[e.n:], samples)
		samples = samples[n:]
		if e.n += n; e.n == EncoderBlock {
			e.err = e.frame()
		}
	}
	return e.err
}

// Close writes the last frame. It returns the body of a STREAMINFO that knows all about the file, to be written over the one at
// StreamInfoOffset. It does not close the writer.
func (e *Encoder) Close() ([StreamInfoBytes]byte, error) {
	if e.err == nil && e.n > 0 {
		e.err = e.frame()
	}
	if e.err != nil {
		return [StreamInfoBytes]byte{}, e.err
	}
	e.err = errClosed
	e.md5.Sum(e.info.MD5[:0])
	return e.info.Bytes(), nil
}

// frame writes the pending samples.
func (e *Encoder) frame() error {
	x := e.pending[:e.n]
	e.n = 0
	unused := 32 - e.info.Bits
	raw := e.raw[:0]
	for i, v := range x {
		if v<<unused>>unused != v {
			return fmt.Errorf("flac: sample %d is %d, which has more than %d bits", e.frames*EncoderBlock+uint64(i), v, e.info.Bits)
		}
		if e.info.Bits == 16 {
			raw = binary.LittleEndian.AppendUint16(raw, uint16(v))
		} else {
			raw = append(raw, byte(v), byte(v>>8), byte(v>>16))
		}
	}
	_, _ = e.md5.Write(raw) // a hash never fails
	e.out.reset()
	e.header(len(x))
	e.coder.encode(&e.out, x, uint(e.info.Bits))
	e.out.align()
	e.out.b = binary.BigEndian.AppendUint16(e.out.b, crc16(0, e.out.b))
	b := e.out.b
	if e.info.MinFrame == 0 || len(b) < e.info.MinFrame {
		e.info.MinFrame = len(b)
	}
	e.info.MaxFrame = max(e.info.MaxFrame, len(b))
	e.frames++
	if _, err := e.w.Write(b); err != nil {
		return fmt.Errorf("flac: write a frame: %w", err)
	}
	return nil
}

// header writes a frame header (RFC 9639, section 9.1).
func (e *Encoder) header(block int) {
	blockCode := byte(7)
	if block == EncoderBlock {
		blockCode = 12
	}
	code, tail, _ := rateCode(e.info.Rate)
	bitsCode := byte(4)
	if e.info.Bits == 24 {
		bitsCode = 6
	}
	b := e.out.b // empty
	b = append(b, 0xFF, 0xF8, blockCode<<4|code, bitsCode<<1)
	b = appendCodedNumber(b, e.frames)
	if blockCode == 7 {
		b = binary.BigEndian.AppendUint16(b, uint16(block-1))
	}
	switch code {
	case 12:
		b = append(b, byte(tail))
	case 13, 14:
		b = binary.BigEndian.AppendUint16(b, tail)
	}
	b = append(b, crc8(b))
	e.out.b = b
}

// rateCode is a rate as frame headers have it: a code, and what stands at the header's end for some codes.
func rateCode(rate int) (code byte, tail uint16, ok bool) {
	for code, known := range rates {
		if rate == known && code > 0 {
			return byte(code), 0, true
		}
	}
	switch {
	case rate <= 0:
		return 0, 0, false
	case rate%1000 == 0 && rate <= 255000:
		return 12, uint16(rate / 1000), true
	case rate <= 65535:
		return 13, uint16(rate), true
	case rate%10 == 0 && rate <= 655350:
		return 14, uint16(rate / 10), true
	}
	return 0, 0, false
}

// appendCodedNumber writes a number of up to 36 bits in the manner of UTF-8.
func appendCodedNumber(b []byte, v uint64) []byte {
	if v < 0x80 {
		return append(b, byte(v))
	}
	more := 1 // bytes of 6 bits each behind the first, which has 6-more bits and from two on one fewer with each
	for bits.Len64(v) > 6*more+6-more {
		more++
	}
	b = append(b, byte(0xFF<<(7-more))|byte(v>>(6*more)))
	for more > 0 {
		more--
		b = append(b, 0x80|byte(v>>(6*more)&0x3F))
	}
	return b
}
