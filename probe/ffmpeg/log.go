package ffmpeg

import (
	"strings"
	"sync"
	"time"
)

// clipBytes is how much of each end of its output a clip keeps.
const clipBytes = 4 << 10

// clip keeps the start and the end of what is written to it: the start tells what ffmpeg found, the end why it gave up.
type clip struct {
	mu         sync.Mutex
	head, tail []byte
	cut        bool
	changed    chan struct{} // nil, or closed by the next write
}

func (c *clip) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(p), clipBytes-len(c.head))
	c.head = append(c.head, p[:n]...)
	if rest := p[n:]; len(rest) >= clipBytes {
		c.cut = c.cut || len(c.tail) > 0 || len(rest) > clipBytes
		c.tail = append(c.tail[:0], rest[len(rest)-clipBytes:]...)
	} else if len(rest) > 0 {
		if over := len(c.tail) + len(rest) - clipBytes; over > 0 {
			c.cut = true
			c.tail = c.tail[:copy(c.tail, c.tail[over:])]
		}
		c.tail = append(c.tail, rest...)
	}
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	return len(p), nil
}

func (c *clip) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.both()
}

func (c *clip) both() []byte {
	b := append([]byte{}, c.head...)
	if c.cut {
		b = append(b, "\n[...]\n"...)
	}
	return append(b, c.tail...)
}

// suffix is the text as the end of an error's message: one line, and nothing where nothing was said.
func (c *clip) suffix() string {
	text := strings.Join(strings.FieldsFunc(string(c.bytes()), func(r rune) bool { return r < ' ' || r == 0x7f }), " | ")
	if text == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(text, "?")
}

// await is the text once find finds something in it, which it returns; nil if that does not come to pass in time or before end is closed.
func (c *clip) await(find func(text []byte) []byte, within time.Duration, end <-chan struct{}) []byte {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for last := false; ; {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed, text := c.changed, c.both()
		c.mu.Unlock()
		if found := find(text); found != nil || last {
			return found
		}
		select {
		case <-changed:
		case <-end:
			last = true
		case <-timeout.C:
			last = true
		}
	}
}
