// Package mp3 decodes MPEG audio, Layer III: MPEG-1 (ISO 11172-3), MPEG-2 with its halved rates (ISO 13818-3), and MPEG-2.5, which halves them
// again. It parses the headers of all layers, and the tags of encoders (Xing, LAME, VBRI). It knows no files: whoever has found the frames,
// in whatever container, can use it.
//
// It is written for bytes from strangers. It allocates nothing but the Decoder and what its caller's slice needs to grow; the cost of a
// frame is bounded; a frame that is wrong gives silence of its length and an error, and the decoder goes on with the next. Checksums of
// frames are not looked at: many encoders got them wrong.
package mp3

import (
	"errors"
	"fmt"
	"slices"
)

// What can be wrong with a frame. Its samples are given all the same: what could not be decoded is silence.
var (
	// ErrDamaged says that a frame contradicts itself.
	ErrDamaged = errors.New("mp3: damaged frame")
	// ErrMissing says that a frame starts in the data of an earlier frame that the decoder has not seen. That is normal for the first frames of a
	// stream that was cut out of another.
	ErrMissing = errors.New("mp3: data of an earlier frame is missing")
)

func damaged(what string) error { return fmt.Errorf("%w: %s", ErrDamaged, what) }

const (
	granuleLines = 576 // frequency lines, and samples, of a granule
	subbands     = 32
	subbandLines = granuleLines / subbands

	// MaxFrameBytes is more than any frame has: 640 kbit/s at 8 kHz, which is free format.
	MaxFrameBytes = 6 << 10

	reservoirBytes = 511 // how far back a frame may start: nine bits
	spareBytes     = 64  // behind the data: scalefactors and a pair may be read beyond it, and bits are loaded eight bytes at a time
)

// Decoder decodes frame after frame of a stream. It is not safe for concurrent use.
type Decoder struct {
	tables *tables
	header Header // of the last frame
	side   sideInfo

	main [reservoirBytes + MaxFrameBytes + spareBytes]byte // the reservoir and the frame's own data
	held int                                               // bytes in the reservoir

	channel [2]channel
}

// channel is what a channel needs, and what it keeps from frame to frame.
type channel struct {
	factors scalefactors // the second granule may use those of the first
	lines   [granuleLines]float32
	overlap [granuleLines]float32 // the second halves of the last blocks, by subband
	fading  int                   // subbands in overlap that are not silent
	sub     [granuleLines]float32 // subband samples, by time and subband
	history [(15 + subbandLines) * subbands]float32
}

// NewDecoder makes a Decoder for one stream.
func NewDecoder() *Decoder { return &Decoder{tables: theTables()} }

// Decode appends the samples of a frame to dst, interleaved, in ±1 or a little beyond, and returns it. frame is a whole frame, from its header
// on; in free format all of it is taken for the frame. Header.Samples per channel are appended unless the header cannot be parsed or
// is not of Layer III. The error, if any, is ErrDamaged or ErrMissing.
//
// A change of rate or channels starts a new stream.
func (d *Decoder) Decode(dst []float32, frame []byte) ([]float32, error) {
	h, ok := ParseHeader(frame)
	if !ok || h.Layer != 3 {
		return dst, damaged("it has no header of Layer III")
	}
	if d.header.Rate != h.Rate || d.header.Channels() != h.Channels() {
		*d = Decoder{tables: d.tables}
	}
	d.header = h
	start, end, err := d.fill(frame)
	whole := err == nil
	for g := range h.Samples() / granuleLines {
		infos := d.side.granules[g][:h.Channels()]
		if whole {
			if e := d.granule(g, start, end); e != nil {
				err = e
				d.silence(infos)
			}
			for c := range infos {
				start += infos[c].bits
			}
		} else {
			d.silence(infos)
		}
		dst = d.output(dst, infos)
	}
	d.keep(end / 8)
	return dst, err
}

// fill parses the side information and puts the frame's data behind the reservoir. start and end of the data are bits of main; start is
// negative where data is missing.
func (d *Decoder) fill(frame []byte) (start, end int, err error) {
	h := d.header
	dataAt := h.sideAt() + h.sideBytes()
	if n := h.Bytes(); n > 0 {
		if n > len(frame) {
			err = damaged("it is cut off")
		}
		frame = frame[:min(n, len(frame))]
	}
	if len(frame) < dataAt || len(frame) > MaxFrameBytes {
		d.held = 0
		return 0, 0, damaged("its length is impossible")
	}
	if e := d.side.parse(h, frame[h.sideAt():dataAt]); e != nil {
		err = e
	}
	start = 8 * (d.held - d.side.begin)
	n := d.held + copy(d.main[d.held:], frame[dataAt:])
	clear(d.main[n : n+spareBytes])
	return start, 8 * n, err
}

// keep makes the last of n bytes of main the reservoir.
func (d *Decoder) keep(n int) {
	d.held = min(n, reservoirBytes)
	copy(d.main[:d.held], d.main[n-d.held:n])
}

// granule decodes the lines of granule g, whose data starts at bit start, in a frame whose data ends at bit end.
func (d *Decoder) granule(g, start, end int) error {
	if start < 0 {
		return ErrMissing
	}
	h := d.header
	for c := range h.Channels() {
		info, ch := &d.side.granules[g][c], &d.channel[c]
		stop := start + info.bits
		if stop > end {
			return damaged("it needs more data than there is")
		}
		bits := bitReader{data: &d.main, at: start}
		ch.factors.read(&bits, h, info, c == 1 && h.intensity())
		if err := d.tables.spectrum(&ch.lines, info, &bits, stop); err != nil {
			return err
		}
		d.tables.requantize(&ch.lines, info, &ch.factors)
		start = stop
	}
	if h.Mode == JointStereo {
		d.join(d.side.granules[g][:])
	}
	return nil
}

// silence stands for the lines of a granule that cannot be decoded.
func (d *Decoder) silence(infos []granuleInfo) {
	for c := range infos {
		bits := infos[c].bits
		infos[c] = granuleInfo{bits: bits, layout: &layouts[0][longBlocks]}
		d.channel[c].lines = [granuleLines]float32{}
		d.channel[c].factors = scalefactors{}
	}
}

// output makes samples of the lines.
func (d *Decoder) output(dst []float32, infos []granuleInfo) []float32 {
	n := granuleLines * len(infos)
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	for c := range infos {
		ch := &d.channel[c]
		d.tables.hybrid(ch, &infos[c])
		d.tables.synthesize(ch, dst[at+c:], len(infos))
	}
	return dst
}
