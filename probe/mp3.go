package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/aviary-asr/aviary/probe/mp3"
)

// MPEG audio without a container: MP3, and Layer II, which ffmpeg decodes. The frames are found by frameWalk, whose rules hold.
//
// The rules, where files contradict themselves:
//
//   - Whatever the bit rate and the size would give, the frames are counted.
//   - The first frame may be a tag (Xing, Info, VBRI): it is no audio. The number of frames that it claims must be there, give or take one and
//     50 ms; files that were joined end to end claim what the first one had, and are broken by that. A claim of 0 frames is none.
//   - LAME's tag also says how many samples at the start and at the end are padding. With the decoder's own delay, these are not heard.
//   - A frame whose data are damaged is silent, as long as more than half are not. So are frames at the start that need data of frames
//     before them, which is normal for a piece of a stream.
//   - Frames of free format are as long as the first one.

func sniffMP3(head []byte) bool {
	_, _, ok := findMPEG(head)
	return ok
}

// findMPEG finds the first frame in the head of a file, and how to read the headers of all.
func findMPEG(head []byte) (at int, parse frameParser, ok bool) {
	parse = mpegParser(0)
	if h, free := mp3.ParseHeader(head); free && h.Bitrate == 0 {
		parse = mpegParser(freeFormat(head, h))
	}
	at, _, ok = parse.find(head)
	return at, parse, ok
}

// freeFormat is the length of frames in free format without padding: it follows from where the next one is. 0 if there is none.
func freeFormat(head []byte, h mp3.Header) int {
	padding := h.FreeBytes(0)
	for n := mp3.HeaderBytes + padding; n < min(len(head), mp3.MaxFrameBytes); n++ {
		next, ok := mp3.ParseHeader(head[n:])
		if !ok || !next.Continues(h) {
			continue
		}
		if _, _, ok := mpegParser(n - padding).find(head); ok {
			return n - padding
		}
	}
	return 0
}

// mpegParser reads headers of MPEG audio. free is the length of frames in free format, 0 if there can be none.
func mpegParser(free int) frameParser {
	return func(b []byte) (frameHead, bool) {
		h, ok := mp3.ParseHeader(b)
		if !ok {
			return frameHead{}, false
		}
		n := h.Bytes()
		if n == 0 {
			n = h.FreeBytes(free)
		}
		kind := frameKind{name: mpegNames[h.Version][h.Layer-1], rate: h.Rate, channels: h.Channels()}
		if h.Bitrate == 0 {
			kind.detail = 1
		}
		return frameHead{bytes: n, frames: int64(h.Samples()), kind: kind}, n > mp3.HeaderBytes
	}
}

// mpegNames are by version and layer.
var mpegNames = [3][3]string{
	mp3.MPEG1:  {"MPEG-1 Layer I", "MPEG-1 Layer II", "MPEG-1 Layer III"},
	mp3.MPEG2:  {"MPEG-2 Layer I", "MPEG-2 Layer II", "MPEG-2 Layer III"},
	mp3.MPEG25: {"MPEG-2.5 Layer I", "MPEG-2.5 Layer II", "MPEG-2.5 Layer III"},
}

// mpegFile is a file of MPEG audio.
type mpegFile struct {
	*codedTrack
	parse   frameParser
	first   frameHead
	start   int64        // of the audio: behind a tag
	tag     mp3.Tag      // zeros if there is none
	counted *mpegPackets // by count
	decoded *mpegPackets // by read, but for ffmpeg's
}

func openMP3(_ context.Context, s *source) (track, error) {
	at, parse, ok := findMPEG(s.head)
	if !ok {
		return nil, broken("The file does not start with frames of MPEG audio.")
	}
	h, _ := mp3.ParseHeader(s.head[at:])
	st := stream{container: "mp3", codec: codecMP3, rate: h.Rate, channels: h.Channels(), claimed: unknown, keep: unknown}
	switch h.Layer {
	case 1:
		return nil, unsupported("The file holds MPEG Layer I, which is not supported.")
	case 2:
		st.container, st.codec = "mp2", codecMP2
	}
	f := &mpegFile{parse: parse, start: int64(at)}
	f.first, _ = parse(s.head[at:])
	if err := f.readTag(s, h); err != nil {
		return nil, err
	}
	f.claim(&st)
	if at > 0 {
		st.warnings = append(st.warnings, fmt.Sprintf("The first %d bytes are no audio and were left out.", at))
	}
	st.packets = func(counting bool) packetReader {
		p := &mpegPackets{walk: frameWalk{source: s, parse: parse, kind: f.first.kind, at: f.start}, tag: f.tag, each: f.first.frames}
		switch {
		case counting:
			f.counted = p
		case h.Layer == 3:
			f.decoded = p
		}
		return p
	}
	coded, err := newCodedTrack(s, st)
	if err != nil {
		return nil, err
	}
	f.codedTrack = coded.(*codedTrack)
	return f, nil
}

// readTag looks for a tag in the first frame.
func (f *mpegFile) readTag(s *source, h mp3.Header) error {
	b := make([]byte, min(int64(f.first.bytes), mp3.TagBytes, s.size-f.start))
	if err := s.bytes(b, f.start); err != nil {
		return err
	}
	tag, ok := mp3.ParseTag(h, b)
	if ok {
		f.tag = tag
		f.start += min(int64(f.first.bytes), s.size-f.start)
	}
	return nil
}

// claim tells the stream what the tag says of it.
func (f *mpegFile) claim(st *stream) {
	total := f.tag.Frames * f.first.frames
	if f.tag.Trimmed {
		st.skip = int64(f.tag.Delay + mp3.DecoderDelay)
	}
	if total > 0 {
		st.loose = f.first.frames
		st.claimed = total
		if f.tag.Trimmed {
			// Padding counts from where the encoder stopped; what the decoder is late by has been taken off it.
			st.keep = max(total-st.skip-max(int64(f.tag.Padding)-mp3.DecoderDelay, 0), 0)
			st.claimed = st.keep
		}
	}
}

func (f *mpegFile) about() about {
	a := f.codedTrack.about()
	for _, p := range []*mpegPackets{f.counted, f.decoded} {
		if p != nil {
			a.warnings = append(slices.Clip(a.warnings), p.walk.warnings()...)
			break
		}
	}
	return a
}

// read also goes through what is behind the last frame to be heard: more than a tag claims is damage.
func (f *mpegFile) read(ctx context.Context, dst []float32) (int, error) {
	n, err := f.codedTrack.read(ctx, dst)
	if errors.Is(err, io.EOF) && f.decoded != nil {
		for err = nil; err == nil; {
			_, err = f.decoded.next(ctx)
		}
	}
	return n, err
}

// mpegPackets are the frames of a file.
type mpegPackets struct {
	walk   frameWalk
	tag    mp3.Tag
	each   int64 // sample frames in a frame
	frames int64 // sample frames so far
}

func (p *mpegPackets) next(ctx context.Context) (packet, error) {
	b, h, err := p.walk.next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return packet{}, p.end()
	case err != nil:
		return packet{}, err
	}
	p.frames += h.frames
	return packet{data: b, frames: h.frames}, nil
}

// end holds the claim of the tag against what was there.
func (p *mpegPackets) end() error {
	if p.tag.Frames == 0 || p.frames == 0 {
		return io.EOF
	}
	rate, each := p.walk.kind.rate, p.each
	claim := p.tag.Frames * each
	if off := durationOf(max(claim-p.frames, p.frames-claim)-each, rate); off > slack {
		return broken("The first frame says that %.3f s of audio follow, but there are %.3f s.",
			durationOf(claim, rate).Seconds(), durationOf(p.frames, rate).Seconds())
	}
	return io.EOF
}
