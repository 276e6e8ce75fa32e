package probe

import (
	"context"
	"io"

	"github.com/aviary-asr/aviary/probe/adpcm"
)

// WAV with coded samples: the data chunk is blocks of equal size, which is all that counting them takes. ADPCM is decoded here, other codecs by
// ffmpeg, which gets the fmt chunk as its setup.
//
// The fact chunk says how many sample frames are to be heard, since the last block is filled up. It is believed where its end lies within the last
// block that the data chunk claims; any other is a claim that what is there has to bear out, as everywhere.

// wavCodings makes codings of the fmt chunks with these tags.
var wavCodings = map[uint16]func(*wavHeader) (*blockCoding, error){
	tagMicrosoft: microsoftCoding,
	tagIMA:       imaCoding,
	tagGSM:       gsmCoding,
	tagYamaha:    halfByteCoding("adpcm_yamaha"),
	tagG722:      halfByteCoding("adpcm_g722"),
	tagG726:      g726Coding,
	tagG726ADPCM: g726Coding,
}

func (h *wavHeader) damaged(tag int) error {
	return broken("The header gives blocks of %d bytes with %d channels and %d bits per sample, which %s does not have.", h.align, h.channels, h.bits, wavTags[uint16(tag)])
}

func microsoftCoding(h *wavHeader) (*blockCoding, error) {
	pairs, err := h.coefficients()
	if err != nil {
		return nil, err
	}
	return h.adpcm(tagMicrosoft, "adpcm_ms", func() (adpcmBlocks, error) { return adpcm.NewMicrosoft(int(h.channels), int(h.align), pairs) })
}

// coefficients reads those of Microsoft's ADPCM: their number and they, behind the number of samples in a block.
func (h *wavHeader) coefficients() ([][2]int16, error) {
	e := h.extension
	if len(e) < 4 {
		return adpcm.StandardCoefficients, nil // some writers leave them out
	}
	n := int(h.order.Uint16(e[2:]))
	if n < 1 || n > 256 || len(e) < 4+4*n {
		return nil, broken("The header of the ADPCM file gives %d pairs of coefficients, and %d bytes for them.", n, len(e)-4)
	}
	pairs := make([][2]int16, n)
	for i := range pairs {
		pairs[i] = [2]int16{int16(h.order.Uint16(e[4+4*i:])), int16(h.order.Uint16(e[6+4*i:]))}
	}
	return pairs, nil
}

func imaCoding(h *wavHeader) (*blockCoding, error) {
	return h.adpcm(tagIMA, "adpcm_ima_wav", func() (adpcmBlocks, error) { return adpcm.NewIMA(int(h.channels), int(h.align)) })
}

// adpcm checks that the number of samples in a block, which the header gives besides its size, is what the size holds.
func (h *wavHeader) adpcm(tag int, name string, open func() (adpcmBlocks, error)) (*blockCoding, error) {
	c, err := adpcmCoding(name, int(h.align), open)
	if err != nil || h.bits != 4 {
		return nil, h.damaged(tag)
	}
	if len(h.extension) >= 2 {
		if claim := int(h.order.Uint16(h.extension)); claim != 0 && claim != c.blockFrames {
			return nil, broken("The header gives %d samples per ADPCM block, but blocks of %d bytes hold %d.", claim, h.align, c.blockFrames)
		}
	}
	return c, nil
}

// gsmCoding is GSM 6.10 as Microsoft packs it: two frames of 160 samples in 65 bytes.
func gsmCoding(h *wavHeader) (*blockCoding, error) {
	const blockBytes, blockFrames = 65, 320
	if h.channels != 1 || h.align != blockBytes {
		return nil, h.damaged(tagGSM)
	}
	return &blockCoding{codec: codecGSM, blockBytes: blockBytes, blockFrames: blockFrames, packetBytes: blockBytes, setup: h.waveFormatEx()}, nil
}

// streamPacketBytes is about what is decoded at once of codecs that know no blocks.
const streamPacketBytes = 1024

// halfByteCoding is a codec of 4 bits per sample that knows no blocks.
func halfByteCoding(name string) func(*wavHeader) (*blockCoding, error) {
	return func(h *wavHeader) (*blockCoding, error) {
		if h.bits != 4 || h.channels > 2 || name == "adpcm_g722" && h.channels > 1 {
			return nil, h.damaged(int(h.tag))
		}
		channels := int(h.channels)
		return &blockCoding{codec: h.acm(name), blockBytes: channels, blockFrames: 2, packetBytes: streamPacketBytes * channels, setup: h.waveFormatEx()}, nil
	}
}

// g726Coding is G.726, of 2 to 5 bits per sample.
func g726Coding(h *wavHeader) (*blockCoding, error) {
	if h.bits < 2 || h.bits > 5 || h.channels != 1 {
		return nil, h.damaged(int(h.tag))
	}
	bits := int(h.bits)
	return &blockCoding{codec: h.acm("adpcm_g726"), blockBytes: bits, blockFrames: 8, packetBytes: streamPacketBytes * bits, setup: h.waveFormatEx()}, nil
}

// acm is a codec that ffmpeg knows by the format tag.
func (h *wavHeader) acm(name string) codec {
	c := codecACM
	c.name, c.title = name, wavTags[h.tag]
	return c
}

// waveFormatEx is the fmt chunk in its longer form.
func (h *wavHeader) waveFormatEx() []byte {
	if len(h.raw) > fmtBytes {
		return h.raw
	}
	return append(h.raw, 0, 0) // there is no extension
}

// coded makes a track of blocks that the walk has found.
func (w *wavFile) coded() (track, error) {
	c := w.format.coding
	st := c.stream(w.source, w.dataAt, w.dataBytes+w.hidden)
	st.container, st.rate, st.channels, st.claimed = w.meta.container, w.format.rate, w.format.channels, w.meta.claimed
	if fact := int64(w.fact); fact > 0 && fact < 1<<32-1 {
		whole := w.meta.claimed
		if whole == unknown {
			whole = c.frames(w.dataBytes)
		}
		if st.claimed = fact; fact <= whole && fact > whole-int64(c.blockFrames) && w.hidden == 0 {
			st.keep = fact
		}
	}
	return newCodedTrack(w.source, st)
}

// mp3 makes a track of a data chunk that is an MP3 file. What the fmt chunk says of the rate is not used, and neither is the fact chunk: the frames say
// all. That the chunk is whole has to be seen here.
func (w *wavFile) mp3(ctx context.Context) (track, error) {
	there := w.size - w.dataAt
	switch {
	case w.meta.claimed > there:
		return nil, broken("The data of the WAV file claims %d bytes, but the file has %d more: it is cut off.", w.meta.claimed, there)
	case w.hidden > 0:
		return nil, broken("The WAV file has %d bytes behind its data that are no chunks.", w.hidden)
	case w.dataBytes == 0:
		return nil, broken("The file holds no audio.")
	}
	part, err := newSource(io.NewSectionReader(w.source, w.dataAt, w.dataBytes), w.dataBytes)
	if err != nil {
		return nil, err
	}
	part.ffmpeg = w.ffmpeg
	t, err := openMP3(ctx, part)
	if err != nil {
		return nil, err
	}
	return contained{t, w.meta.container}, nil
}

// contained is a track of another format within a container.
type contained struct {
	track
	container string
}

func (t contained) about() about {
	a := t.track.about()
	a.container = t.container
	return a
}
