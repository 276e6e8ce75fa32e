package probe

import (
	"bytes"
	"errors"
	"io"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/flac"
)

// FLAC in packets, as Ogg and Matroska hold it: each packet is one frame.

// parseFLACSetup reads "fLaC" and the metadata blocks behind it, of which STREAMINFO is the first.
func parseFLACSetup(setup []byte) (flac.StreamInfo, error) {
	const at = 8 // behind the magic and the block's header
	if len(setup) < at+flac.StreamInfoBytes || string(setup[:4]) != "fLaC" || setup[4]&0x7F != 0 || string(setup[5:8]) != "\x00\x00\x22" {
		return flac.StreamInfo{}, broken("The header of the FLAC track does not start with STREAMINFO.")
	}
	info, err := flac.ParseStreamInfo([flac.StreamInfoBytes]byte(setup[at:]))
	if err != nil {
		return info, aviary.WrapError(aviary.CodeAudioBroken, "", err, "The header of the FLAC track is damaged.")
	}
	return info, nil
}

// flacPacketFrames is how many sample frames a packet has by its frame header. What follows the header is not looked at: flacPackets does.
func flacPacketFrames(data []byte, info flac.StreamInfo) (int64, error) {
	h, _, ok := flac.ParseHeader(data[:min(len(data), flac.MaxHeaderBytes)], info)
	switch {
	case !ok:
		return 0, broken("A packet of %d bytes holds no FLAC frame.", len(data))
	case h.Rate != info.Rate || h.Channels != info.Channels || h.Bits != info.Bits:
		return 0, flacPacketError(flac.ErrMismatch)
	}
	return int64(h.Block), nil
}

// flacPackets reads whole frames out of packets.
type flacPackets struct {
	info   flac.StreamInfo
	frames *flac.Decoder
	bytes  bytes.Reader
}

func newFLACPackets(info flac.StreamInfo) *flacPackets {
	p := &flacPackets{info: info}
	p.frames = flac.NewDecoder(&p.bytes, info)
	return p
}

// count checks the packet that r holds up to its last bit, and says how many sample frames it has.
func (p *flacPackets) count(r io.Reader) (int64, error) {
	p.frames.Reset(r)
	n, err := p.frames.Skip()
	return int64(n), p.whole(err)
}

// whole turns the error of a frame, or more bytes behind it, into what is wrong with its packet.
func (p *flacPackets) whole(err error) error {
	if err == nil {
		if _, err = p.frames.Skip(); errors.Is(err, io.EOF) {
			return nil
		} else if err == nil {
			err = flac.ErrDamaged
		}
	}
	return flacPacketError(err)
}

// flacPacketError says what an error of package flac means for a packet. Failures of the reader underneath stay what they are.
func flacPacketError(err error) error {
	switch {
	case errors.Is(err, flac.ErrMismatch):
		return aviary.WrapError(aviary.CodeAudioBroken, "", err,
			"A FLAC packet has another sample rate, number of channels or width than the header of its track says.")
	case errors.Is(err, io.EOF):
		return broken("A FLAC packet is empty.")
	case errors.Is(err, flac.ErrDamaged), errors.Is(err, flac.ErrNoFrame):
		return aviary.WrapError(aviary.CodeAudioBroken, "", err, "A FLAC packet is damaged.")
	}
	return err
}

func newFLACPacketDecoder(st stream) (decoder, error) {
	info, err := parseFLACSetup(st.setup)
	if err != nil {
		return nil, err
	}
	return newFLACPackets(info), nil
}

// decode implements decoder.
func (p *flacPackets) decode(dst []float32, data []byte) ([]float32, error) {
	p.bytes.Reset(data)
	p.frames.Reset(&p.bytes)
	n, err := p.frames.Next()
	if err != nil {
		return dst, p.whole(err)
	}
	at := len(dst)
	dst = grown(dst, n*p.info.Channels)
	interleaveFLAC(dst[at:], p.frames, p.info, 0)
	return dst, p.whole(nil)
}
