package probe

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/ogg"
)

// oggWalk goes through the pages of an Ogg file: the beginnings of streams, and the pages of the one that was chosen.
type oggWalk struct {
	pages    *ogg.Reader
	pending  *ogg.Page // the page that the last link ended at
	canceled func() error

	first   *oggLink // of the chain; nil while it is looked for
	current *oggLink
	links   int
	serials []uint32     // of the current link's streams
	packets *ogg.Packets // of the stream that was chosen
	ended   bool         // it had its last page
	granule int64        // of its pages behind the last packet; negative: none
}

// newOggWalk starts at the first page. first is what the first link must be like, or nil.
func newOggWalk(s *source, first *oggLink) *oggWalk {
	return &oggWalk{pages: ogg.NewReader(s.section(0, s.size)), first: first, canceled: func() error { return nil }}
}

// oggBeginning is the first page of a stream.
type oggBeginning struct {
	kind   *oggKind // nil: unknown
	page   ogg.Page
	packet []byte // of the kinds that are decoded
}

// maxOggHeadBytes bounds the first packet of the kinds that are decoded: OpusHead may have 276 bytes.
const maxOggHeadBytes = 512

// link goes to the next link and reads its headers. Links without audio behind the first one are skipped. It returns io.EOF behind the last one.
func (w *oggWalk) link(ctx context.Context) (*oggLink, error) {
	w.canceled = ctx.Err
	for {
		if w.links++; w.links > maxOggLinks {
			return nil, broken("The Ogg file has more than %d streams one after another.", maxOggLinks)
		}
		begun, err := w.beginnings()
		if err != nil {
			return nil, err
		}
		l := &oggLink{}
		page, err := l.choose(begun)
		if w.links > 1 && aviary.CodeOf(err) == aviary.CodeAudioNoStream {
			if err := w.skipLink(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		w.current, w.ended, w.granule = l, page.Last, unknown
		w.packets = ogg.NewPackets(page, w.page)
		if err := w.headers(l); err != nil {
			return nil, err
		}
		if w.first == nil {
			w.first = l
		}
		return l, l.joins(w.first)
	}
}

// beginnings reads the first pages of the streams that begin together, up to the first other page.
func (w *oggWalk) beginnings() ([]oggBeginning, error) {
	var begun []oggBeginning
	w.serials = w.serials[:0]
	for {
		p, err := w.read()
		switch {
		case errors.Is(err, io.EOF) && len(begun) > 0:
			return begun, nil
		case err != nil:
			return nil, err
		case !p.First && len(begun) == 0:
			return nil, broken("The Ogg file does not start with the beginning of a stream.")
		case !p.First:
			w.pending = p
			return begun, nil
		case w.knows(p.Serial):
			return nil, broken("Two streams of the Ogg file have the same number.")
		case len(begun) == maxOggStreams:
			return nil, broken("The Ogg file has more than %d streams.", maxOggStreams)
		}
		b := oggBeginning{kind: oggKindOf(p.Body()), page: *p}
		if b.kind != nil && b.kind.codec != nil {
			if p.Packets() != 1 || len(p.Body()) > maxOggHeadBytes {
				return nil, broken("The first page of the %s stream does not hold just its header.", b.kind.title)
			}
			b.packet = bytes.Clone(p.Body())
		}
		w.serials = append(w.serials, p.Serial)
		begun = append(begun, b)
	}
}

func (w *oggWalk) knows(serial uint32) bool {
	for _, s := range w.serials {
		if s == serial {
			return true
		}
	}
	return false
}

// skipLink reads up to the end of a link.
func (w *oggWalk) skipLink() error {
	w.current, w.ended = nil, true
	for {
		if _, err := w.page(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// read gives the next page of any stream, and io.EOF at the end of the file: which is where nothing follows that looks like a page.
func (w *oggWalk) read() (*ogg.Page, error) {
	if p := w.pending; p != nil {
		w.pending = nil
		return p, nil
	}
	if err := w.canceled(); err != nil {
		return nil, err
	}
	p, err := w.pages.Next()
	if err == nil {
		return p, nil
	}
	at := w.pages.Offset()
	if errors.Is(err, ogg.ErrNoPage) {
		switch found, findErr := w.pages.Find(); {
		case findErr != nil:
			return nil, findErr
		case found:
			return nil, broken("The Ogg file is damaged between bytes %d and %d.", at, w.pages.Offset())
		case w.ended:
			return nil, io.EOF
		}
		return nil, aviary.WrapError(aviary.CodeAudioBroken, "", err, "The Ogg file is damaged or cut off at byte %d.", at)
	}
	return nil, w.fault(err, at)
}

// fault says what an error of package ogg means for the file.
func (w *oggWalk) fault(err error, at int64) error {
	detail := ""
	switch {
	case errors.Is(err, ogg.ErrCut):
		detail = "The Ogg file is cut off at byte %d."
	case errors.Is(err, ogg.ErrDamaged):
		detail = "The Ogg page at byte %d is damaged."
	case errors.Is(err, ogg.ErrLost):
		detail = "Pages of the Ogg file are missing before byte %d."
	default:
		return err
	}
	return aviary.WrapError(aviary.CodeAudioBroken, "", err, detail, at)
}

// page gives the next page of the chosen stream, and io.EOF at its end: of the link or of the file.
func (w *oggWalk) page() (*ogg.Page, error) {
	for {
		p, err := w.read()
		switch {
		case err != nil:
			return nil, err
		case p.First:
			w.pending = p
			return nil, io.EOF
		case !w.knows(p.Serial):
			return nil, broken("The Ogg page at byte %d belongs to a stream that never began.", p.At)
		case w.current == nil || p.Serial != w.current.serial:
			continue
		case w.ended:
			return nil, broken("The Ogg stream goes on behind its end, at byte %d.", p.At)
		}
		w.ended = p.Last
		if p.Packets() == 0 && p.Last {
			w.granule = p.Granule
		}
		return p, nil
	}
}

// headers reads the header packets behind the first one.
func (w *oggWalk) headers(l *oggLink) error {
	switch l.kind.codec {
	case &codecOpus:
		if err := w.header("OpusTags"); err != nil {
			return err
		}
	case &codecVorbis:
		if err := w.header("\x03vorbis"); err != nil {
			return err
		}
		if err := w.header("\x05vorbis"); err != nil {
			return err
		}
		if err := w.vorbisSetup(l); err != nil {
			return err
		}
	default: // FLAC: metadata is told from frames by its first byte, when packets are read
	}
	w.packets.Loosen()
	return nil
}

// header goes to the next packet, which must start like this header. What it holds is not read: comments may have pictures.
func (w *oggWalk) header(magic string) error {
	err := w.packets.Next()
	if err == nil {
		start := make([]byte, len(magic))
		if _, err = io.ReadFull(w.packets, start); err == nil && string(start) == magic {
			if magic[0] != 5 {
				err = w.packets.Discard()
			}
		} else if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return broken("A header packet of the %s stream is missing or damaged.", w.current.kind.title)
		}
	}
	if errors.Is(err, io.EOF) {
		return broken("The %s stream ends within its headers.", w.current.kind.title)
	}
	return w.fault(err, w.pages.Offset())
}

// vorbisSetup reads the packet with the codebooks, of which the magic has been read. Links that have those of the first need not read them.
func (w *oggWalk) vorbisSetup(l *oggLink) (err error) {
	setup := []byte("\x05vorbis")
	if setup, err = readPacket(w.packets, setup, maxVorbisSetupBytes); err != nil {
		return w.fault(err, w.pages.Offset())
	}
	l.codebooks = setup
	if f := w.first; f != nil && f.kind == l.kind && bytes.Equal(f.codebooks, setup) && bytes.Equal(f.identification, l.identification) {
		timing := *f.vorbis
		timing.reset()
		l.vorbis, l.codebooks, l.setup = &timing, f.codebooks, f.setup
		return nil
	}
	if l.vorbis, err = vorbisTimingOf(l.identification, setup); err != nil {
		return err
	}
	l.setup = laceVorbis(l.identification, noVorbisComments, setup)
	return nil
}

// noVorbisComments is a comment header that says nothing.
var noVorbisComments = []byte("\x03vorbis\x00\x00\x00\x00\x00\x00\x00\x00\x01")

// readPacket appends a packet to b, which may then have most bytes.
func readPacket(r io.Reader, b []byte, most int) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			if len(b) >= most {
				var one [1]byte
				if n, err := r.Read(one[:]); n == 0 && errors.Is(err, io.EOF) {
					return b, nil
				} else if n == 0 {
					return b, err
				}
				return b, broken("A packet has more than %d bytes.", most)
			}
			b = append(make([]byte, 0, min(max(2*cap(b), 4<<10), most)), b...)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		} else if err != nil {
			return b, err
		}
	}
}
