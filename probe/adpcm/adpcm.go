// Package adpcm decodes the kinds of adaptive differential PCM that audio files hold: Microsoft's and that of the Interactive Multimedia Association
// (IMA, also called DVI; its "Recommended Practices for Enhancing Digital Audio Compatibility", 1992), as WAV files have it (RFC 2361 lists the tags
// 0x0002 and 0x0011) and as Apple's have it. All store 4 bits per sample in blocks.
//
// It is written for bytes from strangers: it knows no container, allocates nothing but what the caller's slice needs for a block, and takes any
// bytes for samples, since nearly all are.
package adpcm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDamaged says that a block cannot be one.
var ErrDamaged = errors.New("adpcm: damaged block")

// The most channels of a stream and bytes of a block: the fields of a WAV hold no more bytes.
const (
	MaxChannels   = 8
	MaxBlockBytes = 65535
)

// layout is how a kind of block is built.
type layout struct {
	channels    int
	blockBytes  int
	headBytes   int // for each channel
	headSamples int // in the block's head, for each channel
	unitBytes   int // of all channels, that can only be decoded together
	unitSamples int // in these, for each channel
}

// Frames is how many sample frames a block of so many bytes has; only the last block of a stream is shorter than the others. It is 0 where there
// is not even a head.
func (l *layout) Frames(bytes int) int {
	rest := min(bytes, l.blockBytes) - l.headBytes*l.channels
	if rest < 0 {
		return 0
	}
	return l.headSamples + rest/l.unitBytes*l.unitSamples
}

func (l *layout) check() error {
	if l.channels < 1 || l.channels > MaxChannels || l.blockBytes > MaxBlockBytes || l.Frames(l.blockBytes) <= l.headSamples {
		return fmt.Errorf("adpcm: blocks of %d bytes with %d channels", l.blockBytes, l.channels)
	}
	return nil
}

// grow makes room for a block.
func (l *layout) grow(dst []int16, block []byte) (grown, room []int16, err error) {
	n := l.Frames(len(block)) * l.channels
	if n == 0 || len(block) > l.blockBytes {
		return dst, nil, fmt.Errorf("%w: %d bytes, where blocks have %d", ErrDamaged, len(block), l.blockBytes)
	}
	at := len(dst)
	for cap(dst) < at+n {
		dst = append(dst[:cap(dst)], 0)
	}
	dst = dst[:at+n]
	return dst, dst[at:], nil
}

func clamp(v int) int16 { return int16(min(max(v, -32768), 32767)) }

// Microsoft decodes Microsoft's kind.
type Microsoft struct {
	layout
	coefficients [][2]int16
}

// StandardCoefficients are the pairs that every file has, in units of 1/256. They predict a sample from the last and the one before it.
var StandardCoefficients = [][2]int16{{256, 0}, {512, -256}, {0, 0}, {192, 64}, {240, 0}, {460, -208}, {392, -232}}

// NewMicrosoft makes a decoder for blocks of so many bytes, which choose among these coefficients (at most 256).
func NewMicrosoft(channels, blockBytes int, coefficients [][2]int16) (*Microsoft, error) {
	if channels > 2 {
		return nil, fmt.Errorf("adpcm: Microsoft's kind with %d channels", channels)
	}
	m := &Microsoft{layout{channels: channels, blockBytes: blockBytes, headBytes: 7, headSamples: 2, unitBytes: 1, unitSamples: 2}, coefficients}
	if channels == 2 {
		m.unitSamples = 1 // a byte has one of each
	}
	if len(coefficients) == 0 || len(coefficients) > 256 {
		return nil, fmt.Errorf("adpcm: %d pairs of coefficients", len(coefficients))
	}
	return m, m.check()
}

// adaptation says how the step changes after a 4-bit difference, in units of 1/256.
var adaptation = [16]int{230, 230, 230, 230, 307, 409, 512, 614, 768, 614, 512, 409, 307, 230, 230, 230}

// The limits of a step. Real signals stay far below the upper one, which keeps products within 32 bits, as other decoders have it.
const (
	leastStep = 16
	mostStep  = (1<<31 - 1) / 768
)

type microsoftChannel struct {
	c1, c2, step     int
	latest, previous int
}

// Decode appends the block's frames, interleaved. A block's head is, field by field for all channels: the number of the coefficients, the step, the
// second sample and the first.
func (m *Microsoft) Decode(dst []int16, block []byte) ([]int16, error) {
	dst, out, err := m.grow(dst, block)
	if err != nil {
		return dst, err
	}
	var state [2]microsoftChannel
	n := m.channels
	for c := range n {
		if int(block[c]) >= len(m.coefficients) {
			return dst, fmt.Errorf("%w: coefficients %d of %d", ErrDamaged, block[c], len(m.coefficients))
		}
		k := m.coefficients[block[c]]
		field := func(i int) int { return int(int16(binary.LittleEndian.Uint16(block[n+2*(i*n+c):]))) }
		state[c] = microsoftChannel{int(k[0]), int(k[1]), field(0), field(1), field(2)}
		out[c], out[n+c] = int16(state[c].previous), int16(state[c].latest)
	}
	out = out[2*n:]
	for i := range out { // the upper half of a byte comes first; channels take turns
		half := block[7*n+i/2]
		if i%2 == 0 {
			half >>= 4
		}
		out[i] = state[i%n].next(half & 15)
	}
	return dst, nil
}

func (s *microsoftChannel) next(code byte) int16 {
	difference := int(int8(code<<4) >> 4)
	v := clamp((s.latest*s.c1+s.previous*s.c2)/256 + difference*s.step)
	s.step = min(max(s.step*adaptation[code]>>8, leastStep), mostStep)
	s.previous, s.latest = s.latest, int(v)
	return v
}

// IMA decodes the IMA's kind as WAV files have it.
type IMA struct{ layout }

// NewIMA makes a decoder for blocks of so many bytes.
func NewIMA(channels, blockBytes int) (*IMA, error) {
	m := &IMA{layout{channels: channels, blockBytes: blockBytes, headBytes: 4, headSamples: 1, unitBytes: 4 * channels, unitSamples: 8}}
	if channels < 1 {
		m.unitBytes = 1 // check refuses it
	}
	return m, m.check()
}

// steps are the step sizes: each a tenth more than the last.
var steps = [89]int{
	7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21, 23, 25, 28, 31, 34, 37, 41, 45, 50, 55, 60, 66, 73, 80, 88, 97, 107, 118, 130, 143, 157, 173, 190,
	209, 230, 253, 279, 307, 337, 371, 408, 449, 494, 544, 598, 658, 724, 796, 876, 963, 1060, 1166, 1282, 1411, 1552, 1707, 1878, 2066, 2272, 2499,
	2749, 3024, 3327, 3660, 4026, 4428, 4871, 5358, 5894, 6484, 7132, 7845, 8630, 9493, 10442, 11487, 12635, 13899, 15289, 16818, 18500, 20350, 22385,
	24623, 27086, 29794, 32767,
}

// stepChange says by how much the index of the step changes after a difference, whose sign is left out.
var stepChange = [8]int{-1, -1, -1, -1, 2, 4, 6, 8}

// Decode appends the block's frames, interleaved. For each channel the block's head has a sample, the index of the step and a byte that is not used;
// then channels take turns with four bytes, of which the lower half comes first.
func (m *IMA) Decode(dst []int16, block []byte) ([]int16, error) {
	dst, out, err := m.grow(dst, block)
	if err != nil {
		return dst, err
	}
	n := m.channels
	for c := range n {
		s := imaChannel{latest: int(int16(binary.LittleEndian.Uint16(block[4*c:]))), index: int(block[4*c+2])}
		if err := s.check(); err != nil {
			return dst, err
		}
		out[c] = int16(s.latest)
		for i := range len(out)/n - 1 {
			out[(i+1)*n+c] = s.next(block[4*n+i/8*4*n+4*c+i%8/2] >> (i % 2 * 4) & 15)
		}
	}
	return dst, nil
}

// imaChannel is where a channel has got to.
type imaChannel struct{ latest, index int }

func (s *imaChannel) check() error {
	if s.index >= len(steps) {
		return fmt.Errorf("%w: step %d of %d", ErrDamaged, s.index, len(steps))
	}
	return nil
}

func (s *imaChannel) next(code byte) int16 {
	step := steps[s.index]
	difference := step >> 3
	for bit := range 3 {
		if code>>(2-bit)&1 != 0 {
			difference += step >> bit
		}
	}
	if code&8 != 0 {
		difference = -difference
	}
	s.latest = int(clamp(s.latest + difference))
	s.index = min(max(s.index+stepChange[code&7], 0), len(steps)-1)
	return int16(s.latest)
}

// What QuickTime's kind has for each channel in a block.
const (
	quickTimeBytes   = 34
	quickTimeSamples = 64
)

// QuickTime decodes the IMA's kind as Apple's formats have it, by the name of ima4: blocks of 64 samples, in 34 bytes for each channel. Blocks belong
// together, so that they are to be decoded in their order.
type QuickTime struct {
	layout
	state [MaxChannels]imaChannel
}

// NewQuickTime makes a decoder.
func NewQuickTime(channels int) (*QuickTime, error) {
	if channels < 1 || channels > MaxChannels {
		return nil, fmt.Errorf("adpcm: %d channels", channels)
	}
	return &QuickTime{layout: layout{channels: channels, blockBytes: quickTimeBytes * channels, headBytes: quickTimeBytes, headSamples: quickTimeSamples, unitBytes: 1}}, nil
}

// Decode appends the block's frames, interleaved. A channel's part has a sample of which the lower seven bits are the index of the step, and 32 bytes,
// of which the lower half comes first. The sample is where the last block has ended, less precisely, unless something was cut out.
func (m *QuickTime) Decode(dst []int16, block []byte) ([]int16, error) {
	dst, out, err := m.grow(dst, block)
	if err != nil {
		return dst, err
	}
	n := m.channels
	for c := range n {
		part := block[quickTimeBytes*c:]
		head := binary.BigEndian.Uint16(part)
		start := imaChannel{latest: int(int16(head &^ 0x7F)), index: int(head & 0x7F)}
		if err := start.check(); err != nil {
			return dst, err
		}
		s := &m.state[c]
		if apart := start.latest - s.latest; start.index != s.index || apart > 0x7F || apart < -0x7F {
			*s = start
		}
		for i := range quickTimeSamples {
			out[i*n+c] = s.next(part[2+i/2] >> (i % 2 * 4) & 15)
		}
	}
	return dst, nil
}
