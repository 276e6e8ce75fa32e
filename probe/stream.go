package probe

import (
	"context"
	"errors"
	"io"
	"slices"
)

// stream is one track of coded audio as a demuxer found it: packets, and what it takes to decode them. newCodedTrack makes a track of it.
type stream struct {
	container string // "ogg", "mp4", "webm": as in about
	codec     codec
	rate      int    // Hz, of what is decoded
	channels  int    // of what is decoded
	setup     []byte // the codec's private data, in the form that codec says
	claimed   int64  // sample frames to be heard by the header; unknown if it does not say
	skip      int64  // decoded frames at the start that are not to be heard: the encoder's delay
	keep      int64  // frames behind those that are to be heard; unknown: all
	loose     int64  // see about
	bits      int    // see about; that of PCM follows from its codec
	trims     bool   // packets may have frames that are not to be heard
	warnings  []string
	// packets starts at the first packet, each time anew. When only counting, the packets' data may be nil.
	packets func(counting bool) packetReader
}

// packet is one coded unit.
type packet struct {
	data   []byte // valid until the next call
	frames int64  // sample frames that it decodes to, at the stream's rate
	// Of these, those at the start and at the end that are not to be heard, besides what the stream skips and keeps. Together they are at most frames.
	lead, tail int64
}

// packetReader walks through a stream.
type packetReader interface {
	// next gives the next packet, io.EOF after the last one of a whole stream, or what is broken.
	next(ctx context.Context) (packet, error)
}

// decoder turns packets into samples.
type decoder interface {
	// decode appends the interleaved samples of a packet, as many frames as the packet says. Its errors are faults of the packet.
	decode(dst []float32, data []byte) ([]float32, error)
}

// sampleReader gives a stream's samples as they are decoded, before anything is trimmed.
type sampleReader interface {
	// read is track.read.
	read(ctx context.Context, dst []float32) (frames int, err error)
	close()
}

// codedTrack is the track of a stream.
type codedTrack struct {
	source  *source
	stream  stream
	meta    about
	samples sampleReader
	skip    int64 // left to skip
	keep    int64 // left to give; unknown: all
}

// newCodedTrack checks a stream and makes a track of it. It refuses a codec that is neither decoded here nor by an ffmpeg that is there.
func newCodedTrack(s *source, st stream) (track, error) {
	if err := checkLimits(int64(st.rate), int64(st.channels)); err != nil {
		return nil, err
	}
	if st.codec.builtin(st) == nil {
		if s.ffmpeg == nil {
			return nil, needsFFmpeg(st.codec.title)
		}
		if st.codec.matroska == "" {
			return nil, unsupported("The %s file holds %s, which is not supported.", st.container, st.codec.title)
		}
	}
	a := about{
		container: st.container, codec: st.codec.name, rate: st.rate, channels: st.channels, claimed: st.claimed, held: unknown,
		loose: st.loose, bits: st.bits, warnings: st.warnings,
	}
	if st.codec.pcm != nil {
		st.codec.pcm.describe(&a)
	}
	return &codedTrack{source: s, stream: st, skip: st.skip, keep: st.keep, meta: a}, nil
}

func (t *codedTrack) about() about {
	a := t.meta
	if s, ok := t.samples.(*packetSamples); ok {
		if d, ok := s.decoder.(interface{ warnings() []string }); ok { // of what it decoded so far
			a.warnings = append(slices.Clip(a.warnings), d.warnings()...)
		}
	}
	return a
}

func (t *codedTrack) count(ctx context.Context, most int64) (int64, error) {
	packets := t.stream.packets(true)
	total := int64(0)
	for t.heard(total) <= most {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		p, err := packets.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		total += p.frames - p.lead - p.tail
	}
	return t.heard(total), nil
}

// heard is how many of the decoded frames are to be heard.
func (t *codedTrack) heard(decoded int64) int64 {
	n := max(decoded-t.stream.skip, 0)
	if t.stream.keep != unknown {
		n = min(n, t.stream.keep)
	}
	return n
}

func (t *codedTrack) read(ctx context.Context, dst []float32) (int, error) {
	if t.samples == nil {
		var err error
		if t.samples, err = t.open(ctx); err != nil {
			return 0, err
		}
	}
	channels := t.stream.channels
	for {
		if t.keep == 0 {
			return 0, io.EOF
		}
		n, err := t.samples.read(ctx, dst)
		if err != nil {
			return 0, err
		}
		if t.skip > 0 {
			drop := int(min(int64(n), t.skip))
			t.skip -= int64(drop)
			n -= drop
			copy(dst, dst[drop*channels:(drop+n)*channels])
		}
		if t.keep != unknown {
			n = int(min(int64(n), t.keep))
			t.keep -= int64(n)
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (t *codedTrack) open(ctx context.Context) (sampleReader, error) {
	if make := t.stream.codec.builtin(t.stream); make != nil {
		d, err := make(t.stream)
		if err != nil {
			return nil, err
		}
		return &packetSamples{packets: t.stream.packets(false), decoder: d, channels: t.stream.channels}, nil
	}
	samples, err := openFFmpeg(ctx, t.source.ffmpeg, t.stream)
	if err == nil && t.stream.trims {
		samples = &trimmedSamples{sampleReader: samples, packets: t.stream.packets(true), channels: t.stream.channels}
	}
	return samples, err
}

func (t *codedTrack) close() {
	if t.samples != nil {
		t.samples.close()
	}
}

// trimmedSamples drops what is not to be heard of packets that another program decodes. It walks through them once more.
type trimmedSamples struct {
	sampleReader
	packets            packetReader
	channels           int
	drop, pass, behind int64 // frames to come: not heard, heard, not heard
}

func (s *trimmedSamples) read(ctx context.Context, dst []float32) (int, error) {
	for {
		for s.drop+s.pass+s.behind == 0 {
			p, err := s.packets.next(ctx)
			if errors.Is(err, io.EOF) {
				return 0, s.rest(ctx, dst)
			}
			if err != nil {
				return 0, err
			}
			s.drop, s.pass, s.behind = p.lead, p.frames-p.lead-p.tail, p.tail
		}
		now := &s.drop
		switch {
		case s.drop > 0:
		case s.pass > 0:
			now = &s.pass
		default:
			now = &s.behind
		}
		n := int(min(int64(len(dst)/s.channels), *now))
		n, err := s.sampleReader.read(ctx, dst[:n*s.channels])
		if err != nil {
			return 0, err
		}
		*now -= int64(n)
		if now == &s.pass {
			return n, nil
		}
	}
}

// rest waits for the other program's verdict, and drops what it gives beyond the packets.
func (s *trimmedSamples) rest(ctx context.Context, dst []float32) error {
	for {
		if _, err := s.sampleReader.read(ctx, dst); err != nil {
			return err
		}
	}
}

// packetSamples decodes packets in this process.
type packetSamples struct {
	packets  packetReader
	decoder  decoder
	channels int
	buf      []float32
	ready    []float32 // the part of buf that was not given yet
}

func (s *packetSamples) read(ctx context.Context, dst []float32) (int, error) {
	for len(s.ready) == 0 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		p, err := s.packets.next(ctx)
		if err != nil {
			return 0, err
		}
		if s.buf, err = s.decoder.decode(s.buf[:0], p.data); err != nil {
			return 0, err
		}
		if got := int64(len(s.buf) / s.channels); got != p.frames {
			return 0, broken("A packet of %d sample frames decodes to %d.", p.frames, got)
		}
		s.ready = s.buf[int(p.lead)*s.channels : int(p.frames-p.tail)*s.channels]
	}
	n := min(len(s.ready), len(dst)) / s.channels
	copy(dst, s.ready[:n*s.channels])
	s.ready = s.ready[n*s.channels:]
	return n, nil
}

func (s *packetSamples) close() {}
