package matroska

import (
	"bytes"
	"io"
	"slices"
)

// Packet is one frame of a codec, in the sense of RFC 9559.
type Packet struct {
	Size         int64 // in bytes
	Block        int64 // where the block that it is in starts in the file
	Time         int64 // of the block, in units of timestamps; it may be any number
	DiscardNanos int64 // of audio at its end that is not to be heard; at its start if negative
}

// MaxPacketBytes bounds what Head gives. A second of PCM with 64 channels is less.
const MaxPacketBytes = 16 << 20

// Packets walks through the packets of a file's audio track.
type Packets struct {
	file    *File
	w       *window
	scratch []byte

	cluster     int64 // the end of the Cluster that the walk is in; 0: it is in none
	clusterTime uint64

	sizes    [256]int64 // of a block's packets
	laces    int        // how many there are
	given    int        // how many of them were given
	block    int64      // where it starts
	time     int64
	discard  int64
	blockEnd int64 // of the block or its group

	body, end int64 // of the current packet, without what is stripped of it
	ended     error // what Next returned in place of a packet
}

// Packets starts before the first packet.
func (f *File) Packets() *Packets {
	return &Packets{file: f, w: newWindow(f.r, f.size, f.firstCluster), end: f.firstCluster}
}

// Next goes to the next packet. It returns io.EOF behind the last one of a whole file. Other errors are of type *Error, but for those of the
// reader underneath.
func (p *Packets) Next() (Packet, error) {
	p.w.at = p.end
	for p.given == p.laces && p.ended == nil {
		p.ended = p.nextBlock()
	}
	if p.ended != nil {
		return Packet{}, p.ended
	}
	p.body, p.end = p.w.at, p.w.at+p.sizes[p.given]
	p.given++
	packet := Packet{Size: p.end - p.body + int64(len(p.file.Track.stripped)), Block: p.block, Time: p.time}
	if p.given == p.laces {
		packet.DiscardNanos = p.discard
		p.end = p.blockEnd
	}
	return packet, nil
}

// Head gives the first n bytes of the packet, or all if it has fewer, until the next call of any method. All of a packet that is larger than
// MaxPacketBytes is damage.
func (p *Packets) Head(packet Packet, n int64) ([]byte, error) {
	stripped := p.file.Track.stripped
	if n = min(n, packet.Size); n > MaxPacketBytes {
		return nil, damaged(p.body, "a packet of %d bytes", packet.Size)
	}
	p.w.at = p.body
	if n <= windowBytes && len(stripped) == 0 {
		return p.w.peek(n)
	}
	p.scratch = slices.Grow(p.scratch[:0], int(n))[:n]
	if n = int64(copy(p.scratch, stripped)); n == int64(len(p.scratch)) {
		return p.scratch, nil
	}
	err := p.w.copyTo(p.scratch[n:])
	return p.scratch, err
}

// Reader reads the packet from its start, without a copy of it.
func (p *Packets) Reader(packet Packet) io.Reader {
	p.w.at = p.body
	stripped := p.file.Track.stripped
	return io.MultiReader(bytes.NewReader(stripped), &packetReader{p.w, packet.Size - int64(len(stripped))})
}

// packetReader reads the next bytes of a window.
type packetReader struct {
	w    *window
	left int64
}

// Read implements io.Reader.
func (r *packetReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	data, err := r.w.take(min(int64(len(b)), r.left, windowBytes))
	r.left -= int64(len(data))
	return copy(b, data), err
}

// nextBlock goes to the next block of the track and reads its header.
func (p *Packets) nextBlock() error {
	for {
		var found bool
		var err error
		if p.cluster == 0 {
			err = p.nextCluster()
		} else {
			found, err = p.inCluster()
		}
		if found || err != nil {
			return err
		}
	}
}

// nextCluster enters the next Cluster of the Segment.
func (p *Packets) nextCluster() error {
	end := p.file.segmentEnd
	if p.w.at >= end {
		return p.behind()
	}
	e, err := p.w.element(end)
	if err != nil {
		return err
	}
	switch {
	case e.id == idCluster:
		p.cluster, p.clusterTime = e.end(), 0
		if e.size == unknown {
			p.cluster = unknown
		}
		return nil
	case e.id == idEBML || e.id == idSegment:
		return damaged(e.at, "another file begins behind the first")
	case e.size == unknown:
		return damaged(e.at, "element %X has no size", e.id)
	}
	p.w.at = e.end()
	return nil
}

// behind looks at what follows the Segment: io.EOF, unless it is another one.
func (p *Packets) behind() error {
	if p.file.size-p.w.at < 4 {
		return io.EOF
	}
	b, err := p.w.peek(4)
	if err != nil {
		return err
	}
	switch uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) {
	case idEBML, idSegment, idCluster:
		return damaged(p.w.at, "another file begins behind the first")
	}
	return io.EOF
}

// inCluster looks at the next element of the Cluster. It reports true where that is a block of the track, whose packets are next.
func (p *Packets) inCluster() (bool, error) {
	end := p.cluster
	if end == unknown {
		end = p.file.segmentEnd
	}
	if p.w.at >= end {
		p.cluster = 0
		return false, nil
	}
	e, err := p.w.element(end)
	if err != nil {
		return false, err
	}
	if endsCluster(e.id) && p.cluster == unknown {
		p.w.at, p.cluster = e.at, 0
		return false, nil
	}
	if e.size == unknown {
		return false, damaged(e.at, "element %X has no size", e.id)
	}
	found := false
	switch e.id {
	case idTimestamp:
		p.clusterTime, err = p.w.uint(e)
	case idSimpleBlock:
		p.discard = 0
		found, err = p.enter(e)
		p.blockEnd = e.end()
	case idBlockGroup:
		found, err = p.group(e)
	case idEncryptedBlock:
		err = unsupported(e.at, "encrypted blocks")
	}
	if !found {
		p.w.at = e.end()
	}
	return found, err
}

// endsCluster says whether an element cannot be in a Cluster, so that one of unknown size ends before it.
func endsCluster(id uint32) bool {
	switch id {
	case idCluster, idCues, idTags, idSeekHead, idInfo, idTracks, idChapters, idAttachments, idSegment, idEBML:
		return true
	}
	return false
}

// group reads a BlockGroup: the padding that it tells of may stand behind its block.
func (p *Packets) group(group element) (bool, error) {
	var block element
	var ours bool
	p.discard = 0
	err := p.w.children(group, func(e element) (err error) {
		switch e.id {
		case idBlock:
			if block.id != 0 {
				return damaged(e.at, "a group of two blocks")
			}
			block = e
			ours, err = p.isOurs(e)
		case idDiscardPadding:
			p.discard, err = p.w.int(e)
		}
		return err
	})
	if !ours || err != nil {
		return false, err
	}
	p.w.at = block.body
	found, err := p.enter(block)
	p.blockEnd = group.end()
	return found, err
}

// isOurs says whether a block is of the track, and goes behind its track number.
func (p *Packets) isOurs(e element) (bool, error) {
	_, number, _, err := p.w.vint(8, e.end())
	return number == p.file.Track.number, err
}

// enter reads the header of a block (RFC 9559, section 10) and the sizes of its packets, and stands at the first of them. It reports false
// for another track's.
func (p *Packets) enter(e element) (bool, error) {
	ours, err := p.isOurs(e)
	if !ours || err != nil {
		return false, err
	}
	if e.end()-p.w.at < 3 {
		return false, damaged(e.at, "a block of %d bytes", e.size)
	}
	h, err := p.w.take(3)
	if err != nil {
		return false, err
	}
	p.block, p.time = e.at, int64(p.clusterTime)+int64(int16(uint16(h[0])<<8|uint16(h[1])))
	lacing := h[2] >> 1 & 3
	if lacing == 0 {
		p.sizes[0], p.laces, p.given = e.end()-p.w.at, 1, 0
		return true, nil
	}
	return true, p.lace(e, lacing)
}

// lace reads the sizes of the packets in a block (RFC 9559, section 10.3). The last one has what the others leave.
func (p *Packets) lace(e element, lacing byte) error {
	const xiph, fixed = 1, 2
	if e.end() == p.w.at {
		return damaged(e.at, "a block of %d bytes", e.size)
	}
	b, err := p.w.take(1)
	if err != nil {
		return err
	}
	count, total, size := int(b[0])+1, int64(0), int64(0)
	for i := range count - 1 {
		switch lacing {
		case xiph:
			size, err = p.xiphSize(e)
		case fixed:
			size = (e.end() - p.w.at) / int64(count)
		default:
			size, err = p.ebmlSize(e, size, i == 0)
		}
		if err != nil {
			return err
		}
		if total += size; size < 0 || total > e.end()-p.w.at {
			return damaged(e.at, "a block whose packets are larger than it is")
		}
		p.sizes[i] = size
	}
	last := e.end() - p.w.at - total
	if last < 0 || lacing == fixed && count > 1 && last != size {
		return damaged(e.at, "a block whose packets do not fit in")
	}
	p.sizes[count-1], p.laces, p.given = last, count, 0
	return nil
}

// xiphSize reads a sum of bytes, of which all but the last are 255.
func (p *Packets) xiphSize(e element) (size int64, err error) {
	for {
		if p.w.at == e.end() {
			return 0, damaged(e.at, "a block that ends in its header")
		}
		b, err := p.w.take(1)
		if err != nil {
			return 0, err
		}
		if size += int64(b[0]); b[0] < 255 {
			return size, nil
		}
	}
}

// ebmlSize reads the first size, or how the next one differs from the one before: a number around the middle of what its length allows.
func (p *Packets) ebmlSize(e element, before int64, first bool) (int64, error) {
	_, v, n, err := p.w.vint(8, e.end())
	if err != nil || first {
		return int64(v), err
	}
	return before + int64(v) - (1<<(7*n-1) - 1), nil
}
