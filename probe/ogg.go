package probe

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/flac"
	"github.com/aviary-asr/aviary/probe/ogg"
	"github.com/aviary-asr/aviary/probe/vorbis"
)

// Ogg (RFC 3533) with Opus (RFC 7845), Vorbis (Vorbis I, appendix A) or FLAC (RFC 9639, section 10.1). Pages and packets are read by probe/ogg.
//
// The rules, where files contradict themselves:
//
//   - The packets count. The granule positions of pages, which say where the packets on them end, must agree with them within 50 ms. Only the
//     last page of a stream may say that it ends sooner, by no more than its own packets hold: that trims the end. The first page may start
//     anywhere, if those after it go on from there: so do recordings of live streams. The first page of Vorbis may trim the start.
//   - A page with a wrong checksum, a page that is missing, a stream that ends within a packet or within a page, and packets that are invalid are
//     damage. A stream without its end mark is taken as whole if its last page is; bytes behind the end are ignored if they hold no page.
//   - Of several streams at once the first audio stream is taken. Streams one after another are one recording, if they have the same codec,
//     rate and channels, each with its own trimming.

func sniffOgg(head []byte) bool { return len(head) >= 4 && string(head[:4]) == "OggS" }

const (
	maxOggPacketBytes = 1 << 20 // of audio
	maxOggStreams     = 64      // at once
	maxOggLinks       = 1000    // one after another
)

// oggKinds are the streams that are known by the start of their first packet. Those without a codec are not decoded: they are no audio, or nothing
// decodes them.
var oggKinds = []oggKind{
	{magic: opusMagic, title: "Opus", audio: true, codec: &codecOpus, parse: (*oggLink).parseOpus},
	{magic: "\x01vorbis", title: "Vorbis", audio: true, codec: &codecVorbis, parse: (*oggLink).parseVorbis},
	{magic: "\x7fFLAC", title: "FLAC", audio: true, codec: &codecFLAC, parse: (*oggLink).parseFLAC},
	{magic: "Speex   ", title: "Speex", audio: true},
	{magic: "CELT    ", title: "CELT", audio: true},
	{magic: "PCM     ", title: "OggPCM", audio: true},
	{magic: "\x01audio\x00\x00\x00", title: "OGM audio", audio: true},
	{magic: "fLaC", title: "FLAC in an outdated mapping", audio: true},
	{magic: "\x80theora", title: "Theora video"},
	{magic: "\x01video\x00\x00\x00", title: "OGM video"},
	{magic: "\x01text\x00\x00\x00\x00", title: "OGM text"},
	{magic: "BBCD\x00", title: "Dirac video"},
	{magic: "OVP80", title: "VP8 video"},
	{magic: "\x8bJNG\r\n\x1a\n", title: "pictures"},
	{magic: "\x8aMNG\r\n\x1a\n", title: "pictures"},
	{magic: "fishead\x00", title: "a skeleton"},
	{magic: "fisbone\x00", title: "a skeleton"},
	{magic: "\x80kate\x00\x00\x00", title: "Kate text"},
	{magic: "CMML\x00\x00\x00\x00", title: "CMML text"},
}

type oggKind struct {
	magic string
	title string
	audio bool
	codec *codec
	// parse reads the first packet.
	parse func(l *oggLink, packet []byte) error
}

func oggKindOf(packet []byte) *oggKind {
	for i := range oggKinds {
		if bytes.HasPrefix(packet, []byte(oggKinds[i].magic)) {
			return &oggKinds[i]
		}
	}
	return nil
}

// oggLink is the audio stream of a file or, where streams follow each other, of a link in the chain: what its headers say.
type oggLink struct {
	kind           *oggKind
	serial         uint32
	rate, channels int
	setup          []byte // see codecs.go
	warnings       []string

	opus           opusHead
	identification []byte // of Vorbis
	codebooks      []byte // the setup packet of Vorbis
	vorbis         *vorbisTiming
	flac           flac.StreamInfo
}

func openOgg(ctx context.Context, s *source) (track, error) {
	first := newOggWalk(s, nil)
	link, err := first.link(ctx)
	if err != nil {
		return nil, err
	}
	st := stream{
		container: "ogg", codec: *link.kind.codec, rate: link.rate, channels: link.channels, setup: link.setup, claimed: unknown, keep: unknown,
		trims: true, warnings: link.warnings,
	}
	inside := st.codec.builtin(st) != nil
	f := &oggFile{}
	st.packets = func(counting bool) packetReader {
		r := &oggPackets{walk: newOggWalk(s, link), counting: counting, inside: inside}
		if counting || inside { // others walk on another goroutine, beside one that counts
			f.walked = r
		}
		return r
	}
	f.track, err = newCodedTrack(s, st)
	return f, err
}

// oggFile is the track of a file.
type oggFile struct {
	track
	walked *oggPackets // what was read of it last
}

func (f *oggFile) about() about {
	a := f.track.about()
	if f.walked != nil && f.walked.unmarked {
		a.warnings = append(slices.Clip(a.warnings), "The Ogg file does not say where it ends. It may be cut off.")
	}
	return a
}

// choose takes the first audio stream that can be decoded, of those that begin together.
func (l *oggLink) choose(begun []oggBeginning) (*ogg.Page, error) {
	var other *oggKind
	strange := false
	for i := range begun {
		b := &begun[i]
		switch {
		case b.kind == nil:
			strange = true
		case b.kind.codec == nil && b.kind.audio && other == nil:
			other = b.kind
		case b.kind.codec != nil && l.kind != nil:
			l.warnings = []string{"The file has several audio streams. The first one was taken."}
		case b.kind.codec != nil:
			l.kind, l.serial = b.kind, b.page.Serial
			if err := l.kind.parse(l, b.packet); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case l.kind != nil:
		for i := range begun {
			if begun[i].page.Serial == l.serial {
				return &begun[i].page, nil
			}
		}
	case other != nil:
		return nil, unsupported("The Ogg file holds %s, which is not supported.", other.title)
	case strange:
		return nil, unsupported("The Ogg file holds a stream of an unknown kind.")
	}
	return nil, aviary.Errorf(aviary.CodeAudioNoStream, "", "The Ogg file holds no audio.")
}

func (l *oggLink) parseOpus(packet []byte) (err error) {
	l.opus, err = parseOpusHead(packet)
	l.rate, l.channels, l.setup = opusRate, l.opus.channels, packet
	return err
}

func (l *oggLink) parseVorbis(packet []byte) error {
	info, err := vorbis.ParseIdentification(packet)
	if err != nil {
		return vorbisError(err, "The header of the Vorbis stream is damaged.")
	}
	l.rate, l.channels, l.identification = info.Rate, info.Channels, packet
	return checkLimits(int64(info.Rate), int64(info.Channels))
}

// parseFLAC reads the mapping's version, the number of header packets, which is not needed, and what stands at the start of a native file.
func (l *oggLink) parseFLAC(packet []byte) (err error) {
	const start = 9
	if len(packet) < start || packet[5] != 1 {
		return broken("The Ogg FLAC header is cut off or of an unknown version.")
	}
	l.flac, err = parseFLACSetup(packet[start:])
	if err != nil {
		return err
	}
	l.rate, l.channels = l.flac.Rate, l.flac.Channels
	info := l.flac.Bytes()
	l.setup = append([]byte("fLaC\x80\x00\x00\x22"), info[:]...)
	return checkLimits(int64(l.rate), int64(l.channels))
}

// joins says whether l can follow the first stream of a chain.
func (l *oggLink) joins(first *oggLink) error {
	what := ""
	switch {
	case l.kind != first.kind:
		what = fmt.Sprintf("%s to %s", first.kind.title, l.kind.title)
	case l.rate != first.rate:
		what = fmt.Sprintf("%d Hz to %d Hz", first.rate, l.rate)
	case l.channels != first.channels:
		what = fmt.Sprintf("%d channels to %d", first.channels, l.channels)
	case l.flac.Bits != first.flac.Bits:
		what = fmt.Sprintf("%d bits to %d", first.flac.Bits, l.flac.Bits)
	case l.kind.codec == &codecOpus && (!l.opus.plain() || !first.opus.plain()) && !bytes.Equal(l.setup, first.setup):
		what = "one layout of channels to another"
	default:
		return nil
	}
	return broken("The Ogg file changes from %s in the middle.", what)
}
