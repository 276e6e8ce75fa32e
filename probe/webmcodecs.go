package probe

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/aviary-asr/aviary/probe/matroska"
	"github.com/aviary-asr/aviary/probe/mp3"
)

// webmCoding is how the packets of a track are coded.
type webmCoding struct {
	codec          codec
	rate, channels int
	setup          []byte
	bits           int   // as in about
	skip           int64 // as in stream
	mostBytes      int64 // of a packet
	// counter makes what says how many sample frames packets have, one after another.
	counter func() func(*matroska.Packets, matroska.Packet) (int64, error)
	// Samples that are not coded, or in blocks of equal size, are decoded in parts of packets of at most partBytes; 0: in whole packets.
	partBytes  int64
	partFrames func(bytes int64) int64
}

// The largest packets. FLAC has up to 65,535 frames of 8 channels in one, encoders write 4,096.
const (
	webmPacketBytes         = 64 << 10
	webmLosslessPacketBytes = 1 << 20
)

// webmCodings makes codings of tracks by the CodecID, without what may follow it behind a slash (RFC 9559, and the codec specifications of CELLAR).
var webmCodings = []struct {
	id    string
	parse func(*webmFile) (webmCoding, error)
}{
	{"A_OPUS", webmOpus},
	{"A_VORBIS", webmVorbis},
	{"A_FLAC", webmFLAC},
	{"A_MPEG/L3", func(w *webmFile) (webmCoding, error) { return webmMPEG(w, 3) }},
	{"A_MPEG/L2", func(w *webmFile) (webmCoding, error) { return webmMPEG(w, 2) }},
	{"A_AAC", webmAAC},
	{"A_ALAC", webmALAC},
	{"A_AC3", webmDolby},
	{"A_EAC3", webmDolby},
	{"A_PCM/INT/LIT", func(w *webmFile) (webmCoding, error) { return webmPCM(w, pcmFormat{kind: pcmSigned}) }},
	{"A_PCM/INT/BIG", func(w *webmFile) (webmCoding, error) { return webmPCM(w, pcmFormat{kind: pcmSigned, bigEndian: true}) }},
	{"A_PCM/FLOAT/IEEE", func(w *webmFile) (webmCoding, error) { return webmPCM(w, pcmFormat{kind: pcmFloat}) }},
	{"A_MS/ACM", webmACM},
}

func webmCodingOf(w *webmFile) (webmCoding, error) {
	id := w.file.Track.CodecID
	for _, c := range webmCodings {
		if id == c.id || strings.HasPrefix(id, c.id+"/") {
			return c.parse(w)
		}
	}
	return webmCoding{}, unsupported("The audio of the %s file is coded as %q, which is not supported.", w.title, id)
}

// headCounter counts packets by their first bytes.
func headCounter(bytes int64, count func([]byte) (int64, error)) func() func(*matroska.Packets, matroska.Packet) (int64, error) {
	return func() func(*matroska.Packets, matroska.Packet) (int64, error) {
		return func(p *matroska.Packets, m matroska.Packet) (int64, error) {
			b, err := p.Head(m, bytes)
			if err != nil {
				return 0, err
			}
			return count(b)
		}
	}
}

func webmOpus(w *webmFile) (webmCoding, error) {
	setup := w.file.Track.Private
	h, err := parseOpusHead(setup)
	if err != nil {
		return webmCoding{}, err
	}
	return webmCoding{codec: codecOpus, rate: opusRate, channels: h.channels, setup: setup, skip: h.preSkip, mostBytes: maxOpusBytes,
		counter: headCounter(maxOpusBytes, h.frames)}, nil
}

func webmVorbis(w *webmFile) (webmCoding, error) {
	setup := w.file.Track.Private
	t, err := newVorbisTiming(setup)
	if err != nil {
		return webmCoding{}, err
	}
	counter := func() func(*matroska.Packets, matroska.Packet) (int64, error) {
		own := *t
		own.reset()
		return headCounter(16, own.frames)()
	}
	return webmCoding{codec: codecVorbis, rate: t.rate, channels: t.channels, setup: setup, mostBytes: webmPacketBytes, counter: counter}, nil
}

func webmFLAC(w *webmFile) (webmCoding, error) {
	setup := w.file.Track.Private
	info, err := parseFLACSetup(setup)
	if err != nil {
		return webmCoding{}, err
	}
	c := webmCoding{codec: codecFLAC, rate: info.Rate, channels: info.Channels, setup: setup, mostBytes: webmLosslessPacketBytes}
	if info.Bits > 16 {
		c.bits = info.Bits
	}
	c.counter = func() func(*matroska.Packets, matroska.Packet) (int64, error) {
		packets := newFLACPackets(info)
		return func(p *matroska.Packets, m matroska.Packet) (int64, error) { return packets.count(p.Reader(m)) }
	}
	return c, nil
}

// firstPacket gives the start of the first packet, of codecs that say there what they are.
func (w *webmFile) firstPacket(bytes int64) ([]byte, error) {
	p := w.file.Packets()
	m, err := p.Next()
	if errors.Is(err, io.EOF) {
		return nil, broken("The %s file holds no audio.", w.title)
	}
	if err != nil {
		return nil, webmError(err)
	}
	b, err := p.Head(m, bytes)
	return b, webmError(err)
}

func webmMPEG(w *webmFile, layer int) (webmCoding, error) {
	b, err := w.firstPacket(mp3.HeaderBytes)
	if err != nil {
		return webmCoding{}, err
	}
	first, ok := mp3.ParseHeader(b)
	if !ok || first.Layer != layer {
		return webmCoding{}, broken("The audio track does not start with MPEG audio of Layer %d.", layer)
	}
	c := webmCoding{codec: codecMP3, rate: first.Rate, channels: first.Channels(), mostBytes: webmPacketBytes}
	if layer == 2 {
		c.codec = codecMP2
	}
	c.counter = headCounter(webmPacketBytes, func(b []byte) (int64, error) {
		if h, ok := mp3.ParseHeader(b); ok && (h.Rate != first.Rate || h.Channels() != first.Channels()) {
			return 0, broken("The MPEG audio changes its sample rate or number of channels.")
		}
		return mpegPacketFrames(b, layer)
	})
	return c, nil
}

// webmAAC takes the configuration from the codec's header; old files have none and say the profile in the CodecID ("A_AAC/MPEG4/LC/SBR").
func webmAAC(w *webmFile) (webmCoding, error) {
	track := w.file.Track
	setup := track.Private
	if len(setup) == 0 {
		core := slices.Index(aacRates[:], rateOf(track.SampleRate))
		channels := slices.Index(aacChannels[:], track.Channels)
		if core < 0 || channels < 1 {
			return webmCoding{}, broken("The AAC track has no configuration.")
		}
		config := uint32(aotLC)<<11 | uint32(core)<<7 | uint32(channels)<<3
		setup = binary.BigEndian.AppendUint16(nil, uint16(config))
	}
	return webmAACOf(setup)
}

func webmAACOf(setup []byte) (webmCoding, error) {
	a, err := parseAudioSpecificConfig(setup)
	if err != nil {
		return webmCoding{}, err
	}
	return webmCoding{codec: codecAAC, rate: a.rate, channels: a.channels, setup: setup, mostBytes: webmPacketBytes,
		counter: headCounter(0, func([]byte) (int64, error) { return a.frames, nil })}, nil
}

// webmALAC reads the ALACSpecificConfig. Packets that are shorter than others say so.
func webmALAC(w *webmFile) (webmCoding, error) {
	config, err := parseALACConfig(w.file.Track.Private)
	if err == nil {
		err = config.check()
	}
	if err != nil {
		return webmCoding{}, err
	}
	c := webmCoding{codec: codecALAC, rate: config.rate, channels: config.channels, setup: w.file.Track.Private, bits: config.bits, mostBytes: webmLosslessPacketBytes}
	c.counter = headCounter(alacHeadBytes, func(b []byte) (int64, error) { return alacFrames(b, config.frames), nil })
	return c, nil
}

func webmDolby(w *webmFile) (webmCoding, error) {
	b, err := w.firstPacket(dolbyHeadBytes)
	if err != nil {
		return webmCoding{}, err
	}
	h, ok := parseDolby(b)
	if !ok {
		return webmCoding{}, broken("The audio track does not start with AC-3.")
	}
	c := webmCoding{codec: codecAC3, rate: h.rate, channels: h.channels, mostBytes: webmPacketBytes, counter: headCounter(webmPacketBytes, dolbyPacketFrames)}
	if h.enhanced {
		c.codec = codecEAC3
	}
	return c, nil
}

func webmPCM(w *webmFile, f pcmFormat) (webmCoding, error) {
	track := w.file.Track
	if f.bytes = track.BitDepth / 8; f.bytes == 1 && f.kind == pcmSigned {
		f.kind = pcmUnsigned
	}
	if track.BitDepth%8 != 0 || !f.known() {
		return webmCoding{}, broken("The %s file gives %d bits per sample, which cannot be.", w.title, track.BitDepth)
	}
	rate := rateOf(track.SampleRate)
	if float64(rate) != track.SampleRate {
		return webmCoding{}, broken("The %s file gives a sample rate of %g Hz, which cannot be decoded.", w.title, track.SampleRate)
	}
	return webmPCMOf(w, f, rate, track.Channels)
}

func webmPCMOf(w *webmFile, f pcmFormat, rate, channels int) (webmCoding, error) {
	if err := checkLimits(int64(rate), int64(channels)); err != nil {
		return webmCoding{}, err
	}
	frame := int64(f.bytes * channels)
	c := webmCoding{codec: pcmCodec(f), rate: rate, channels: channels}
	return c.inBlocks(w, frame, pcmBufferBytes/frame*frame, func(bytes int64) int64 { return bytes / frame }), nil
}

// inBlocks is the coding with packets of any number of blocks of equal size.
func (c webmCoding) inBlocks(w *webmFile, block, part int64, frames func(bytes int64) int64) webmCoding {
	c.mostBytes, c.partBytes, c.partFrames = math.MaxInt64, part, frames
	count := func(_ *matroska.Packets, m matroska.Packet) (int64, error) {
		if m.Size%block != 0 {
			return 0, broken("The %s file has a packet of %d bytes, which is no number of blocks of %d.", w.title, m.Size, block)
		}
		return frames(m.Size), nil
	}
	c.counter = func() func(*matroska.Packets, matroska.Packet) (int64, error) { return count }
	return c
}

// webmACM is what the format tag of Windows says, as in a WAV file's fmt chunk.
func webmACM(w *webmFile) (webmCoding, error) {
	setup := w.file.Track.Private
	s, err := newSource(strings.NewReader(string(setup)), int64(len(setup)))
	if err != nil {
		return webmCoding{}, err
	}
	chunk := wavChunk{"fmt ", 0, uint32(len(setup))}
	wav := &wavFile{source: s, order: binary.LittleEndian}
	h, err := wav.readHeader(chunk)
	if err != nil {
		return webmCoding{}, err
	}
	const tagAAC = 0x00FF
	switch h.tag {
	case tagMP3:
		return webmMPEG(w, 3)
	case tagAAC:
		return webmAACOf(h.extension)
	}
	f, err := wav.parseFormat(chunk)
	switch {
	case err != nil:
		return webmCoding{}, err
	case f.padded:
		return webmCoding{}, unsupported("The samples of the %s file have 24 bits in 4 bytes, which is not supported.", w.title)
	case f.coding == nil:
		return webmPCMOf(w, f.pcm, f.rate, f.channels)
	}
	c := webmCoding{codec: f.coding.codec, rate: f.rate, channels: f.channels, setup: f.coding.setup}
	return c.inBlocks(w, int64(f.coding.blockBytes), int64(f.coding.packetBytes), f.coding.frames), nil
}
