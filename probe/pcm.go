package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// pcmKind is what the bytes of a sample mean.
type pcmKind uint8

const (
	pcmSigned pcmKind = iota
	pcmUnsigned
	pcmFloat
	pcmALaw
	pcmMuLaw
)

// pcmFormat is one way to write samples as bytes, each by itself: this is the only place of the package that turns bytes into samples. Integers
// whose width lies between whole bytes stand in the upper bits of the next larger whole bytes, as in all containers that allow it, and are read as
// if they were wider.
type pcmFormat struct {
	kind      pcmKind
	bytes     int  // of a sample: 1, 2, 3, 4 or 8; 4 or 8 for floats, 1 for A-law and mu-law
	bigEndian bool // no matter for single bytes
	above     int  // bits above an integer's highest one, which mean nothing; 0 in nearly all files
}

// known says whether there is such a format.
func (f pcmFormat) known() bool {
	switch f.kind {
	case pcmSigned, pcmUnsigned:
		return (f.bytes >= 1 && f.bytes <= 4 || f.bytes == 8) && f.above >= 0 && f.above <= 8*f.bytes-8
	case pcmFloat:
		return (f.bytes == 4 || f.bytes == 8) && f.above == 0
	case pcmALaw, pcmMuLaw:
		return f.bytes == 1 && f.above == 0
	}
	return false
}

// name is ffmpeg's of the codec.
func (f pcmFormat) name() string {
	if f.kind == pcmALaw {
		return "pcm_alaw"
	}
	if f.kind == pcmMuLaw {
		return "pcm_mulaw"
	}
	end := "le"
	switch {
	case f.bytes == 1:
		end = ""
	case f.bigEndian:
		end = "be"
	}
	return fmt.Sprintf("pcm_%c%d%s", "suf"[f.kind], (8*f.bytes-f.above+7)/8*8, end)
}

// bits is as in about.
func (f pcmFormat) bits() int {
	if bits := 8*f.bytes - f.above; bits > 16 {
		return bits
	}
	return 0
}

// describe puts what the format says into a.
func (f pcmFormat) describe(a *about) {
	a.codec, a.bits, a.anyScale = f.name(), f.bits(), f.kind == pcmFloat
}

// decode appends the samples of b, which are within ±1 but for floats. Bytes at the end that are no whole sample are ignored.
func (f pcmFormat) decode(dst []float32, b []byte) []float32 {
	n, at := len(b)/f.bytes, len(dst)
	dst = grown(dst, n)
	out := dst[at:]
	switch f.kind {
	case pcmALaw:
		for i := range out {
			out[i] = aLaw[b[i]]
		}
	case pcmMuLaw:
		for i := range out {
			out[i] = muLaw[b[i]]
		}
	case pcmFloat:
		f.floats(out, b)
	case pcmSigned, pcmUnsigned:
		f.integers(out, b)
	}
	return dst
}

// floats fills out.
func (f pcmFormat) floats(out []float32, b []byte) {
	var order binary.ByteOrder = binary.LittleEndian
	if f.bigEndian {
		order = binary.BigEndian
	}
	for i := range out {
		if f.bytes == 4 {
			out[i] = math.Float32frombits(order.Uint32(b[4*i:]))
		} else {
			out[i] = narrow(math.Float64frombits(order.Uint64(b[8*i:])))
		}
	}
}

// integers fills out.
func (f pcmFormat) integers(out []float32, b []byte) {
	flip := uint64(0) // the highest bit of unsigned numbers is that of signed ones, inverted
	if f.kind == pcmUnsigned {
		flip = 1 << 63
	}
	const scale = 1.0 / (1 << 63)
	for i := range out {
		p := b[i*f.bytes : (i+1)*f.bytes]
		v := uint64(0) // the sample in its upper bits
		if f.bigEndian {
			for j, c := range p {
				v |= uint64(c) << (56 - 8*j)
			}
		} else {
			for _, c := range p {
				v = v>>8 | uint64(c)<<56
			}
		}
		out[i] = float32(float64(int64(v<<f.above^flip)) * scale)
	}
}

// pcmCodec is PCM in the packets of a container. A packet holds whole frames.
func pcmCodec(f pcmFormat) codec {
	return codec{name: f.name(), title: "PCM", pcm: &f, inside: func(st stream) (decoder, error) {
		return pcmPackets{f, st.channels}, nil
	}}
}

type pcmPackets struct {
	format   pcmFormat
	channels int
}

// decode implements decoder.
func (p pcmPackets) decode(dst []float32, data []byte) ([]float32, error) {
	if frame := p.format.bytes * p.channels; len(data)%frame != 0 {
		return dst, broken("A packet of %d bytes does not hold whole frames of %d.", len(data), frame)
	}
	return p.format.decode(dst, data), nil
}

// pcmReader reads frames one after another out of a part of a file.
type pcmReader struct {
	source   *source
	format   pcmFormat
	channels int
	at, left int64 // what was not read yet: whole frames
	buf      []byte
}

// pcmBufferBytes is how much is read at once.
const pcmBufferBytes = 32 << 10

// read is track.read.
func (r *pcmReader) read(dst []float32) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	frame := r.format.bytes * r.channels
	if r.buf == nil {
		r.buf = make([]byte, pcmBufferBytes/frame*frame)
	}
	b := r.buf[:min(int64(len(r.buf)), r.left, int64(len(dst)/r.channels*frame))]
	if err := r.source.bytes(b, r.at); err != nil {
		return 0, err
	}
	r.at += int64(len(b))
	r.left -= int64(len(b))
	r.format.decode(dst[:0], b)
	return len(b) / frame, nil
}

// pcmTrack is the track of a file whose samples stand in one piece.
type pcmTrack struct {
	meta    about
	samples pcmReader
}

// newPCMTrack makes a track of the samples that stand in bytes from at on. meta lacks what follows from these; its rate and channels are checked.
func newPCMTrack(s *source, f pcmFormat, meta about, at, bytes int64) *pcmTrack {
	f.describe(&meta)
	frame := int64(f.bytes * meta.channels)
	meta.held = bytes / frame
	return &pcmTrack{meta, pcmReader{source: s, format: f, channels: meta.channels, at: at, left: meta.held * frame}}
}

func (t *pcmTrack) about() about { return t.meta }

func (t *pcmTrack) count(context.Context, int64) (int64, error) { return t.meta.held, nil }

func (t *pcmTrack) read(_ context.Context, dst []float32) (int, error) { return t.samples.read(dst) }

func (t *pcmTrack) close() {}

var _ track = (*pcmTrack)(nil)
