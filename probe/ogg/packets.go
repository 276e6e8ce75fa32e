package ogg

import (
	"errors"
	"io"
)

// Packets reads the packets of one stream. It implements io.Reader for the packet that Next went to. It is not safe for concurrent use.
type Packets struct {
	next  func() (*Page, error) // the next page of the stream; io.EOF at its end
	page  Page
	loose bool // the next page may have any number and start anywhere

	segment int    // of page: the next one
	chunk   []byte // what is left of the packet on the page
	size    int64  // of the packet, as far as it was seen
	open    bool   // the packet goes on on the next page
}

// NewPackets reads the packets behind the first page of a stream; next gives its other pages, one by one.
func NewPackets(first *Page, next func() (*Page, error)) *Packets {
	return &Packets{next: next, page: *first, segment: len(first.lacing)}
}

// Loosen allows the next page to have any number, and drops what it has of a packet that started before: a stream that was joined while it ran has
// its headers, and then starts anywhere.
func (p *Packets) Loosen() { p.loose = true }

// Next goes to the next packet, over what was not read of the last one. It returns io.EOF at the end of the stream.
func (p *Packets) Next() error {
	if err := p.Discard(); err != nil {
		return err
	}
	for p.segment == len(p.page.lacing) {
		if err := p.turn(); err != nil {
			return err
		}
	}
	p.size = 0
	p.take()
	return nil
}

// take takes the segments of one packet from the page.
func (p *Packets) take() {
	size := 0
	p.open = true
	for p.open && p.segment < len(p.page.lacing) {
		v := p.page.lacing[p.segment]
		size += int(v)
		p.open = v == 255
		p.segment++
	}
	p.chunk, p.page.body = p.page.body[:size], p.page.body[size:]
	p.size += int64(size)
}

// turn goes to the next page.
func (p *Packets) turn() error {
	page, err := p.next()
	switch {
	case errors.Is(err, io.EOF) && p.open:
		return ErrCut
	case err != nil:
		return err
	case page.Number != p.page.Number+1 && !p.loose:
		return ErrLost
	case page.Continued != p.open && (p.open || !p.loose):
		return ErrLost
	}
	p.page, p.segment = *page, 0
	if page.Continued {
		drop := !p.open
		p.take()
		if drop {
			// What follows on the next page is dropped as well.
			p.chunk = nil
			p.loose, p.open = p.open, false
			return nil
		}
	}
	p.loose = false
	return nil
}

// Read reads from the packet, io.EOF at its end.
func (p *Packets) Read(b []byte) (int, error) {
	for len(p.chunk) == 0 {
		if !p.open {
			return 0, io.EOF
		}
		if err := p.turn(); errors.Is(err, io.EOF) {
			return 0, ErrCut
		} else if err != nil {
			return 0, err
		}
	}
	n := copy(b, p.chunk)
	p.chunk = p.chunk[n:]
	return n, nil
}

// Discard skips what is left of the packet.
func (p *Packets) Discard() error {
	for p.open {
		if err := p.turn(); err != nil {
			return err
		}
	}
	p.chunk = nil
	return nil
}

// Peek is what can be seen of the packet without going to another page.
func (p *Packets) Peek() []byte { return p.chunk }

// Size is how many bytes the packet has, as far as it was read or discarded: its pages are counted as a whole.
func (p *Packets) Size() int64 { return p.size }

// Page is the page on which the packet's last read byte lies.
func (p *Packets) Page() *Page { return &p.page }

// Last reports whether no other packet ends on the page, once this one is read to its end.
func (p *Packets) Last() bool {
	for _, v := range p.page.lacing[p.segment:] {
		if v < 255 {
			return false
		}
	}
	return true
}
