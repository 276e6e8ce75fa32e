package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/matroska"
)

// WebM and Matroska. Package matroska has the container's rules; webmcodecs.go knows what is in it.
//
// The rules, where files contradict themselves:
//
//   - The packets of the first audio track count, each for what it decodes to. The encoder's delay at the start (the pre-skip of OpusHead, else
//     CodecDelay) and DiscardPadding are not heard; what they claim beyond any encoder's is damage, since it would hide audio.
//   - The Duration in the header is that of the longest track. It is a claim about the audio where there is no other track; otherwise the audio may be
//     shorter, but not longer. A Duration that is no positive number claims nothing, as in live recordings.
//   - Timestamps say nothing about how much audio there is. Where they leave gaps, or too little time for the packets, there is a warning.

const (
	webmMagic    = "\x1a\x45\xdf\xa3" // an EBML header
	clusterMagic = "\x1f\x43\xb6\x75"

	maxWebMScale  = uint64(time.Second) // of one unit of timestamps; usual is a millisecond
	maxCodecDelay = 2 * time.Second     // encoders have 5 to 80 ms

	// webmLoose is how far Duration is from what is heard in files that are whole: writers count the delay or not, and the last packet or not.
	webmLoose = 125 * time.Millisecond
)

func sniffWebM(head []byte) bool { return len(head) >= 4 && string(head[:4]) == webmMagic }

// sniffWebMPiece knows a part of a live recording that was sent by itself: nothing tells what its packets are.
func sniffWebMPiece(head []byte) bool { return len(head) >= 4 && string(head[:4]) == clusterMagic }

func openWebMPiece(context.Context, *source) (track, error) {
	return nil, broken("The file is a piece of a WebM recording without its start, which says how to decode it.")
}

// webmFile is an open file.
type webmFile struct {
	*codedTrack
	file    *matroska.File
	title   string // "WebM" or "Matroska", for messages
	coding  webmCoding
	most    int64 // frames that the header allows; unknown if it does not say
	counted *webmPackets
}

func openWebM(_ context.Context, s *source) (track, error) {
	file, err := matroska.Open(s, s.size)
	if err != nil {
		return nil, webmError(err)
	}
	w := &webmFile{file: file, title: "Matroska", most: unknown}
	if file.DocType == "webm" {
		w.title = "WebM"
	}
	if file.TimestampScale == 0 || file.TimestampScale > maxWebMScale {
		return nil, broken("The %s file counts time in units of %d ns, which cannot be.", w.title, file.TimestampScale)
	}
	if w.coding, err = webmCodingOf(w); err != nil {
		return nil, err
	}
	c := &w.coding
	st := stream{
		container: file.DocType, codec: c.codec, rate: c.rate, channels: c.channels, setup: c.setup, bits: c.bits, claimed: unknown, skip: c.skip,
		keep: unknown, loose: framesWithin(webmLoose, c.rate), trims: true,
	}
	if err := w.delay(&st); err != nil {
		return nil, err
	}
	w.claim(&st)
	if file.AudioTracks > 1 {
		st.warnings = append(st.warnings, fmt.Sprintf("The file has %d audio tracks; only the first one is used.", file.AudioTracks))
	}
	st.packets = func(counting bool) packetReader {
		p := newWebMPackets(w, counting)
		if counting {
			w.counted = p
		}
		return p
	}
	coded, err := newCodedTrack(s, st)
	if err != nil {
		return nil, err
	}
	w.codedTrack = coded.(*codedTrack)
	return w, nil
}

// delay takes the encoder's delay from the header, unless the codec has its own.
func (w *webmFile) delay(st *stream) error {
	nanos := w.file.Track.CodecDelayNanos
	if nanos > uint64(maxCodecDelay) {
		return broken("The %s file claims that %.3f s at its start are not to be heard, which cannot be.", w.title, float64(nanos)/1e9)
	}
	if st.codec.name != codecOpus.name {
		st.skip = nanosToFrames(int64(nanos), st.rate)
	}
	return nil
}

// claim takes the Duration from the header.
func (w *webmFile) claim(st *stream) {
	claim := w.file.Duration * float64(w.file.TimestampScale) / 1e9 * float64(st.rate)
	if !(claim > 0) || math.IsInf(claim, 0) { // not a number, too
		return
	}
	w.most = int64(math.Round(min(claim, math.MaxInt64/4)))
	if w.file.AudioTracks+w.file.OtherTracks == 1 {
		st.claimed = w.most
	}
}

// about adds what counting has shown.
func (w *webmFile) about() about {
	a := w.codedTrack.about()
	if w.counted != nil {
		a.warnings = append(a.warnings[:len(a.warnings):len(a.warnings)], w.counted.warnings()...)
	}
	return a
}

// nanosToFrames is the number of whole frames that is nearest to a time below some minutes.
func nanosToFrames(nanos int64, rate int) int64 {
	return (nanos*int64(rate) + int64(time.Second)/2) / int64(time.Second)
}

// webmError says what an error of package matroska means for the file.
func webmError(err error) error {
	var e *matroska.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case errors.Is(err, matroska.ErrNoAudio):
		return aviary.WrapError(aviary.CodeAudioNoStream, "", err, "The file has no audio track.")
	case errors.Is(err, matroska.ErrUnsupported):
		u := unsupported("The Matroska file has %s (at byte %d), which is not supported.", e.Reason, e.Offset)
		return u
	}
	return aviary.WrapError(aviary.CodeAudioBroken, "", err, "The Matroska file is damaged at byte %d: %s.", e.Offset, e.Reason)
}

// webmPackets walks through the packets of the track.
type webmPackets struct {
	file     *webmFile
	counting bool
	packets  *matroska.Packets
	count    func(*matroska.Packets, matroska.Packet) (int64, error)

	parts io.Reader // of a packet that is given in parts; nil: there is none
	left  int64     // bytes of it
	buf   []byte

	frames, hidden int64 // so far, and of them those that DiscardPadding hides
	begun, ended   bool
	block          int64 // where the last block starts
	first, last    int64 // the times of the first and the last block, in units of timestamps
	before         int64 // frames before the last block
}

func newWebMPackets(w *webmFile, counting bool) *webmPackets {
	return &webmPackets{file: w, counting: counting, packets: w.file.Packets(), count: w.coding.counter()}
}

// next implements packetReader.
func (p *webmPackets) next(ctx context.Context) (packet, error) {
	if p.parts != nil {
		return p.part()
	}
	if err := ctx.Err(); err != nil {
		return packet{}, err
	}
	m, err := p.packets.Next()
	if errors.Is(err, io.EOF) {
		return packet{}, p.end()
	}
	if err != nil {
		return packet{}, webmError(err)
	}
	c := &p.file.coding
	if m.Size > c.mostBytes {
		return packet{}, broken("The %s file has a packet of %d bytes, which %s does not have.", p.file.title, m.Size, c.codec.title)
	}
	n, err := p.count(p.packets, m)
	if err != nil {
		return packet{}, webmError(err)
	}
	if !p.begun {
		p.first, p.begun = m.Time, true
	}
	if m.Block != p.block {
		p.block, p.last, p.before = m.Block, m.Time, p.frames
	}
	p.frames += n
	out := packet{frames: n}
	if err := p.discard(&out, m.DiscardNanos); err != nil {
		return packet{}, err
	}
	switch {
	case p.counting:
		return out, nil
	case c.partBytes > 0:
		p.parts, p.left = p.packets.Reader(m), m.Size
		return p.part()
	}
	out.data, err = p.packets.Head(m, m.Size)
	return out, webmError(err)
}

// discard applies DiscardPadding.
func (p *webmPackets) discard(out *packet, nanos int64) error {
	if nanos == 0 || p.file.coding.partBytes > 0 { // samples that are not coded have no padding
		return nil
	}
	rate := p.file.coding.rate
	const most = int64(time.Hour) // keeps the product in range; a packet has less
	n := min(nanosToFrames(min(nanos, most), rate), out.frames)
	if nanos < 0 {
		n = min(nanosToFrames(min(-max(nanos, -most), most), rate), out.frames)
		out.lead = n
	} else {
		out.tail = n
	}
	if p.hidden += n; p.hidden > int64(rate)+p.frames/100 {
		return broken("The %s file claims that %.3f s of its audio are not to be heard, which cannot be.", p.file.title, durationOf(p.hidden, rate).Seconds())
	}
	return nil
}

// part gives the next part of a packet that may be large.
func (p *webmPackets) part() (packet, error) {
	c := &p.file.coding
	if p.buf == nil {
		p.buf = make([]byte, c.partBytes)
	}
	b := p.buf[:min(p.left, c.partBytes)]
	if _, err := io.ReadFull(p.parts, b); err != nil {
		return packet{}, webmError(err)
	}
	if p.left -= int64(len(b)); p.left == 0 {
		p.parts = nil
	}
	return packet{data: b, frames: c.partFrames(int64(len(b)))}, nil
}

// end holds what was there against the longest track's duration, where that is no claim about this one.
func (p *webmPackets) end() error {
	p.ended = true
	w := p.file
	if w.most == unknown || w.stream.claimed != unknown {
		return io.EOF
	}
	held, most := durationOf(w.heard(p.frames-p.hidden), w.coding.rate), durationOf(w.most, w.coding.rate)
	if held > most+slack+webmLoose {
		return broken("The header says that the longest track has %.3f s, but the audio has %.3f s.", most.Seconds(), held.Seconds())
	}
	return io.EOF
}

// warnings compares the time that passes in the file, up to its last block, with the audio that is there.
func (p *webmPackets) warnings() []string {
	if !p.ended {
		return nil
	}
	passed := float64(p.last-p.first) * float64(p.file.file.TimestampScale) / 1e9
	held := durationOf(p.before, p.file.coding.rate).Seconds()
	switch off := max(1, held/100); {
	case passed-held > off:
		return []string{fmt.Sprintf("By its timestamps the file lasts %.3f s longer than the audio in it: it has gaps, which are left out.", passed-held)}
	case held-passed > off:
		return []string{fmt.Sprintf("The timestamps of the file leave %.3f s less than its audio lasts; they are not used.", held-passed)}
	}
	return nil
}
