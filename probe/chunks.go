package probe

import (
	"encoding/binary"
	"math"
)

// chunkLayout is how a container writes its chunks: an id, a size, and that many bytes. WAV has its own walk, for the sake of its writers' bugs.
type chunkLayout struct {
	title     string // of the format, for messages
	idBytes   int
	sizeBytes int // 4 or 8
	order     binary.ByteOrder
	align     int64 // where chunks start
	inclusive bool  // the size counts the head
}

// dataChunk is a chunk's place in the file. size is unknown where the file says so, and else may reach beyond the file.
type dataChunk struct {
	id   string
	body int64
	size int64
}

// maxChunks bounds the walk through a file of empty chunks.
const maxChunks = 1000

// at reads a chunk's head. It reports false at the end of the file and where no chunk can be: its id is not printable, or its size negative.
func (l *chunkLayout) at(s *source, at int64) (c dataChunk, ok bool, err error) {
	var buf [24]byte
	h := buf[:l.idBytes+l.sizeBytes]
	if s.size-at < int64(len(h)) {
		return c, false, nil
	}
	if err := s.bytes(h, at); err != nil {
		return c, false, err
	}
	for _, v := range h[:4] {
		if v < ' ' || v > '~' {
			return c, false, nil
		}
	}
	size := uint64(0)
	if l.sizeBytes == 4 {
		size = uint64(l.order.Uint32(h[l.idBytes:]))
	} else {
		size = l.order.Uint64(h[l.idBytes:])
	}
	c = dataChunk{id: string(h[:l.idBytes]), body: at + int64(len(h)), size: unknown}
	switch head := uint64(0); {
	case size == math.MaxUint64: // as CAF says that it does not know
	case size > math.MaxInt64:
		return c, false, nil
	default:
		if l.inclusive {
			head = uint64(len(h))
		}
		if size < head { // some writers leave 0 where they do not know
			c.size = 0
			return c, size == 0, nil
		}
		c.size = int64(size - head)
	}
	return c, true, nil
}

// inside says whether a chunk lies within the file.
func (c dataChunk) inside(s *source) bool { return c.size != unknown && c.size <= s.size-c.body }

// next is where the chunk after c starts, which lies within the file.
func (l *chunkLayout) next(c dataChunk) int64 {
	end := c.body + c.size
	return end + (l.align-end%l.align)%l.align
}

// body reads the first n bytes of a chunk.
func (l *chunkLayout) read(s *source, c dataChunk, n int) ([]byte, error) {
	if c.size < int64(n) {
		return nil, broken("The chunk %q of the %s file has %d bytes instead of %d.", c.id[:4], l.title, c.size, n)
	}
	b := make([]byte, n)
	return b, s.bytes(b, c.body)
}

// chunkWalk is where a walk has found the audio.
type chunkWalk struct {
	data   dataChunk
	found  bool
	hidden int64 // bytes behind the data, or behind other chunks behind it, that are no chunks
}

// walk visits the chunks from at on, but for the first with the id of the data, which may reach beyond the file and then is the last.
func (l *chunkLayout) walk(s *source, at int64, dataID string, visit func(dataChunk) error) (w chunkWalk, err error) {
	for range maxChunks {
		c, ok, err := l.at(s, at)
		switch {
		case err != nil:
			return w, err
		case !ok && !w.found:
			return w, broken("The %s file has no data: what should be a chunk at byte %d is not.", l.title, at)
		case !ok, !c.inside(s) && w.found:
			w.hidden = max(s.size-at, 0)
			return w, nil
		case c.id == dataID && w.found:
			return w, broken("The %s file has two %q chunks.", l.title, c.id[:4])
		case c.id == dataID:
			w.data, w.found = c, true
			if !c.inside(s) {
				return w, nil
			}
		case !c.inside(s):
			return w, broken("The chunk %q of the %s file claims %d bytes, more than the file has.", c.id[:4], l.title, c.size)
		default:
			if err := visit(c); err != nil {
				return w, err
			}
		}
		at = l.next(c)
	}
	return w, broken("The %s file has more than %d chunks.", l.title, maxChunks)
}

// pcmExtent says which bytes are samples and how many frames the header claims by the size of the data.
type pcmExtent struct {
	at, bytes int64
	claimed   int64 // bytes; or unknown
	hidden    int64
}

// extent finds the audio in a data chunk, behind so many bytes of it.
func (w chunkWalk) extent(s *source, head int64) pcmExtent {
	e := pcmExtent{at: min(w.data.body+head, s.size), claimed: unknown, hidden: w.hidden}
	there := s.size - e.at
	e.bytes = there
	switch {
	case w.data.size == unknown:
	case w.data.size <= head && w.hidden > 0: // a recorder that died: what should be chunks behind an empty one is audio
		e.hidden = 0
	default:
		e.claimed = max(w.data.size-head, 0)
		e.bytes = min(e.claimed, there)
	}
	return e
}

// track makes a track of samples. claimed is what else the header says of the number of frames; or unknown.
func (e pcmExtent) track(s *source, f pcmFormat, meta about, claimed int64) track {
	frame := int64(f.bytes * meta.channels)
	meta.claimed = claimed
	if e.claimed != unknown && (claimed == unknown || e.claimed > e.bytes) {
		meta.claimed = max(claimed, e.claimed/frame)
	}
	t := newPCMTrack(s, f, meta, e.at, e.bytes)
	if hidden := e.hidden / frame; durationOf(hidden, meta.rate) > slack { // less is junk
		t.meta.held += hidden
		t.meta.claimed = e.claimed / frame // whatever else the header says
	}
	return t
}

// stream makes a stream of blocks. It claims what the size of the data does.
func (e pcmExtent) stream(s *source, c *blockCoding, meta about) stream {
	hidden := e.hidden
	if durationOf(c.frames(hidden), meta.rate) <= slack {
		hidden = 0
	}
	st := c.stream(s, e.at, e.bytes+hidden)
	st.container, st.rate, st.channels = meta.container, meta.rate, meta.channels
	if e.claimed != unknown {
		st.claimed = c.frames(e.claimed)
	}
	return st
}
