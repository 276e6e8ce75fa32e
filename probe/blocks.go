package probe

import (
	"context"
	"fmt"
	"io"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/adpcm"
)

// blockCoding is one way to code samples in blocks of equal size: their number is all that counting them takes.
type blockCoding struct {
	codec       codec
	blockBytes  int
	blockFrames int
	short       func(bytes int) int // how many frames a last block has that is cut; nil: none
	packetBytes int                 // what is decoded at once: whole blocks
	setup       []byte              // as in stream
}

// frames is how many sample frames so many bytes hold.
func (c *blockCoding) frames(bytes int64) int64 {
	n := bytes / int64(c.blockBytes) * int64(c.blockFrames)
	if c.short != nil {
		n += int64(c.short(int(bytes % int64(c.blockBytes))))
	}
	return n
}

// stream describes blocks that stand in bytes from at on, as far as their coding tells.
func (c *blockCoding) stream(s *source, at, bytes int64) stream {
	return stream{codec: c.codec, setup: c.setup, claimed: unknown, keep: unknown, packets: func(counting bool) packetReader {
		return &blockPackets{source: s, coding: c, at: at, left: bytes, counting: counting}
	}}
}

// blockPackets walks through blocks.
type blockPackets struct {
	source   *source
	coding   *blockCoding
	at, left int64
	counting bool
	buf      []byte
	ready    []byte // the part of buf that was not given yet
}

// next implements packetReader. For counting, all blocks are one packet: nothing of them need be read.
func (p *blockPackets) next(context.Context) (packet, error) {
	if p.counting {
		n := p.coding.frames(p.left)
		p.left = 0
		if n == 0 {
			return packet{}, io.EOF
		}
		return packet{frames: n}, nil
	}
	if len(p.ready) == 0 {
		if p.buf == nil {
			p.buf = make([]byte, max(pcmBufferBytes/p.coding.packetBytes, 1)*p.coding.packetBytes)
		}
		b := p.buf[:min(int64(len(p.buf)), p.left)]
		if err := p.source.bytes(b, p.at); err != nil {
			return packet{}, fmt.Errorf("read blocks: %w", err)
		}
		p.at += int64(len(b))
		p.left -= int64(len(b))
		p.ready = b
	}
	data := p.ready[:min(len(p.ready), p.coding.packetBytes)]
	p.ready = p.ready[len(data):]
	n := p.coding.frames(int64(len(data)))
	if n == 0 { // the end, or a rest that is too short to be a block
		return packet{}, io.EOF
	}
	return packet{data: data, frames: n}, nil
}

// adpcmBlocks decodes blocks of ADPCM; package adpcm has them.
type adpcmBlocks interface {
	Frames(bytes int) int
	Decode(dst []int16, block []byte) ([]int16, error)
}

// adpcmCoding is ADPCM by ffmpeg's name. open makes a decoder, or fails for what no block can be.
func adpcmCoding(name string, blockBytes int, open func() (adpcmBlocks, error)) (*blockCoding, error) {
	b, err := open()
	if err != nil {
		return nil, err
	}
	c := codec{name: name, title: "ADPCM", inside: func(stream) (decoder, error) {
		b, err := open() // blocks may have state
		return &adpcmPackets{blocks: b}, err
	}}
	return &blockCoding{codec: c, blockBytes: blockBytes, blockFrames: b.Frames(blockBytes), short: b.Frames, packetBytes: blockBytes}, nil
}

// adpcmPackets decodes packets that are blocks. Of a damaged block, silence remains, as long as they are few.
type adpcmPackets struct {
	blocks    adpcmBlocks
	samples   []int16
	good, bad int64
}

// mostBadBlocks may be damaged at the start of a stream before there are good ones.
const mostBadBlocks = 4

// decode implements decoder.
func (p *adpcmPackets) decode(dst []float32, data []byte) ([]float32, error) {
	var err error
	if p.samples, err = p.blocks.Decode(p.samples[:0], data); err == nil {
		p.good++
	} else {
		clear(p.samples)
		p.bad++
	}
	if p.bad > p.good+mostBadBlocks {
		return dst, aviary.WrapError(aviary.CodeAudioBroken, "", err, "%d of the first %d ADPCM blocks are damaged.", p.bad, p.bad+p.good)
	}
	at := len(dst)
	dst = grown(dst, len(p.samples))
	for i, v := range p.samples {
		dst[at+i] = float32(v) / 32768
	}
	return dst, nil
}

func (p *adpcmPackets) warnings() []string {
	if p.bad == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d ADPCM blocks are damaged and were replaced by silence.", p.bad, p.bad+p.good)}
}

// quickTimeCoding is ADPCM as Apple's formats have it: "ima4".
func quickTimeCoding(channels int) (*blockCoding, error) {
	const channelBytes = 34
	c, err := adpcmCoding("adpcm_ima_qt", channelBytes*channels, func() (adpcmBlocks, error) { return adpcm.NewQuickTime(channels) })
	if err != nil {
		return nil, broken("The header gives %d channels of ADPCM, which are too many.", channels)
	}
	return c, nil
}
