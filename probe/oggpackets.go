package probe

import (
	"context"
	"errors"
	"io"
)

// oggPackets reads the packets of a file's audio, page by page, and compares them with the positions of the pages. What is to be trimmed at the end
// of a stream shows only at its last page, and that it is the last one shows only behind it: hence one page is kept back.
type oggPackets struct {
	walk     *oggWalk
	counting bool
	inside   bool // decoded in this process, by a decoder that takes headers among the packets

	link       *oggLink // nil before the first and between two
	now, ahead oggBatch
	finished   bool     // there is nothing ahead in this link
	unmarked   bool     // a stream ended without an end mark
	queue      [][]byte // headers to give before now
	codebooks  []byte   // of the last link
	frames     *flacPackets
	scratch    []byte

	place      int64 // frames of the link before now
	start      int64 // where the link's first page starts by its position
	preSkip    int64 // frames left to skip
	lead, tail int64 // frames of now, at its start and its end, that are not to be heard
}

// oggBatch is the packets that end on one page.
type oggBatch struct {
	packets int
	given   int        // of them
	frames  [255]int64 // of each
	sizes   [255]int   // bytes of each
	data    []byte     // all packets, one after the other; nothing when only counting
	total   int64      // frames of all
	passed  int64      // frames of the packets that were given
	read    int        // bytes of the packets that were given
	granule int64
	at      int64 // the page
}

func (b *oggBatch) reset() {
	b.packets, b.given, b.data, b.total, b.passed, b.read = 0, 0, b.data[:0], 0, 0, 0
}

func (b *oggBatch) add(frames int64, size int) {
	b.frames[b.packets], b.sizes[b.packets] = frames, size
	b.packets++
	b.total += frames
}

// next implements packetReader. When counting, it gives all packets of a page as one.
func (r *oggPackets) next(ctx context.Context) (packet, error) {
	r.walk.canceled = ctx.Err
	for {
		switch {
		case len(r.queue) > 0:
			p := packet{data: r.queue[0]}
			r.queue = r.queue[1:]
			return p, nil
		case r.now.given < r.now.packets:
			if p := r.give(); r.counting || len(p.data) > 0 {
				return p, nil
			}
		case r.link == nil:
			if err := r.nextLink(ctx); err != nil {
				return packet{}, err
			}
		default:
			if err := r.nextPage(); err != nil {
				return packet{}, err
			}
		}
	}
}

// give takes the next packet from now.
func (r *oggPackets) give() packet {
	b := &r.now
	if r.counting {
		b.given = b.packets
		return packet{frames: b.total, lead: r.lead, tail: r.tail}
	}
	frames, size := b.frames[b.given], b.sizes[b.given]
	p := packet{data: b.data[b.read : b.read+size], frames: frames}
	p.lead = min(max(r.lead-b.passed, 0), frames)
	b.given++
	b.passed += frames
	b.read += size
	p.tail = min(max(r.tail-(b.total-b.passed), 0), frames-p.lead)
	return p
}

// nextLink goes to the next link of the chain, and reads its first page of audio ahead.
func (r *oggPackets) nextLink(ctx context.Context) error {
	l, err := r.walk.link(ctx)
	if err != nil {
		return err
	}
	if r.walk.links > 1 {
		if l.kind.codec == &codecVorbis && !r.inside {
			return unsupported("The Ogg file holds several Vorbis streams of %d channels, which is not supported.", l.channels)
		}
		if r.inside && !r.counting {
			r.restart(l)
		}
	}
	r.link, r.codebooks = l, l.codebooks
	r.place, r.start, r.preSkip = 0, 0, l.opus.preSkip
	if l.kind.codec == &codecFLAC {
		r.frames = newFLACPackets(l.flac)
	}
	r.now.reset()
	return r.readAhead()
}

// restart queues headers for the decoder. Those of Vorbis are odd, which audio is not; OpusHead is no valid packet.
func (r *oggPackets) restart(l *oggLink) {
	switch l.kind.codec {
	case &codecOpus:
		r.queue = append(r.queue, l.setup)
	case &codecVorbis:
		if r.queue = append(r.queue, l.identification); string(l.codebooks) != string(r.codebooks) {
			r.queue = append(r.queue, l.codebooks)
		}
	}
}

// nextPage makes the page that was read ahead the current one. Behind the last one it ends the link.
func (r *oggPackets) nextPage() error {
	if r.finished {
		r.unmarked = r.unmarked || !r.walk.ended
		total := r.link.flac.Samples
		if total > 0 && r.apart(total, r.place+r.now.total) {
			return broken("The header of the FLAC stream claims %.3f s of audio, but the Ogg file holds %.3f s.",
				durationOf(total, r.link.rate).Seconds(), durationOf(r.place+r.now.total, r.link.rate).Seconds())
		}
		r.link = nil
		return nil
	}
	first := r.now.packets == 0
	r.place += r.now.total
	r.now, r.ahead = r.ahead, r.now
	if err := r.readAhead(); err != nil {
		return err
	}
	return r.trim(first)
}

func (r *oggPackets) readAhead() error {
	there, err := r.gather(&r.ahead)
	r.finished = !there
	return err
}

// gather reads the packets that end on the next page where any do. It reports false behind the last one of the link.
func (r *oggPackets) gather(b *oggBatch) (bool, error) {
	b.reset()
	packets := r.walk.packets
	for {
		err := packets.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		switch empty := packets.Size() == 0; {
		case err != nil:
		case empty: // some writers end a stream with such a packet
			b.add(0, 0)
		case b.packets == 0 && r.now.packets == 0 && r.isMetadata(packets.Peek()):
			err = packets.Discard()
			packets.Loosen()
		default:
			err = r.measure(b)
		}
		if err != nil {
			return false, r.walk.fault(err, r.walk.pages.Offset())
		}
		if b.packets > 0 && packets.Last() {
			b.granule, b.at = packets.Page().Granule, packets.Page().At
			return true, nil
		}
	}
}

// isMetadata tells header packets of FLAC from frames, which start with 8 one bits. Their number, in the stream's first packet, need not be right.
func (r *oggPackets) isMetadata(start []byte) bool {
	return r.link.kind.codec == &codecFLAC && start[0] != 0xFF
}

// measure reads a packet, or of it what is needed to count its frames and to know that it can be decoded.
func (r *oggPackets) measure(b *oggBatch) error {
	from := len(b.data)
	frames, err := int64(0), error(nil)
	switch packets := r.walk.packets; {
	case !r.counting:
		if b.data, err = readPacket(packets, b.data, from+maxOggPacketBytes); err == nil {
			frames, err = r.framesOf(b.data[from:])
		}
	case r.link.kind.codec == &codecOpus:
		if r.scratch, err = readPacket(packets, r.scratch[:0], maxOpusBytes); err == nil {
			frames, err = r.framesOf(r.scratch)
		}
	case r.link.kind.codec == &codecVorbis:
		var start [2]byte // a flag, the mode in up to 6 bits
		n, readErr := io.ReadFull(packets, start[:])
		if err = readErr; err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if err = packets.Discard(); err == nil {
				frames, err = r.framesOf(start[:n])
			}
		}
	default:
		if frames, err = r.frames.count(packets); err == nil {
			err = packets.Discard()
		}
	}
	if size := r.walk.packets.Size(); err == nil && size > maxOggPacketBytes {
		err = broken("A packet of the Ogg file has %d bytes.", size)
	}
	if err != nil {
		return err
	}
	b.add(frames, len(b.data)-from)
	return nil
}

// framesOf is how many frames a packet has.
func (r *oggPackets) framesOf(data []byte) (int64, error) {
	switch r.link.kind.codec {
	case &codecOpus:
		if len(data) > maxOpusBytes {
			return 0, broken("An Opus packet has %d bytes.", len(data))
		}
		return r.link.opus.frames(data)
	case &codecVorbis:
		return r.link.vorbis.frames(data)
	}
	return flacPacketFrames(data, r.link.flac)
}

// maxOggPosition bounds positions, so that sums of them are numbers.
const maxOggPosition = 1 << 60

// trim compares the position of the current page with its packets, and says what of them is not to be heard.
func (r *oggPackets) trim(first bool) error {
	b, position := &r.now, r.now.granule
	if r.finished && r.walk.granule >= 0 {
		position = r.walk.granule // of a page without packets, which only ends the stream
	}
	if position < 0 || position > maxOggPosition {
		return broken("The Ogg page at byte %d has no valid position.", b.at)
	}
	r.lead, r.tail = 0, 0
	if first && !r.finished {
		if r.start = position - b.total; r.start < 0 && r.link.kind.codec == &codecVorbis {
			r.lead = min(-r.start, b.total)
		}
		if r.start < 0 && r.apart(r.start, -r.lead) {
			return r.misplaced(position - b.total)
		}
	}
	over := r.start + r.place + b.total - position
	if r.finished && over > 0 {
		r.tail = min(over, b.total)
	}
	if r.apart(over, r.tail) {
		return r.misplaced(-over)
	}
	skip := min(r.preSkip, b.total)
	r.preSkip -= skip
	r.lead += skip
	r.tail = min(r.tail, b.total-r.lead)
	return nil
}

// misplaced refuses a page that ends so many frames later than its packets.
func (r *oggPackets) misplaced(frames int64) error {
	direction := "more"
	if frames < 0 {
		frames, direction = -frames, "less"
	}
	return broken("The Ogg page at byte %d claims %.3f s %s audio than there is.", r.now.at, durationOf(frames, r.link.rate).Seconds(), direction)
}

// apart says whether two numbers of frames differ by more than is allowed.
func (r *oggPackets) apart(a, b int64) bool {
	return durationOf(max(a-b, b-a), r.link.rate) > slack
}

var _ packetReader = (*oggPackets)(nil)
