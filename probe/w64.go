package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
)

// Sony Wave64: WAV with ids of 16 bytes (GUIDs) and sizes of 64 bits, which count the chunk's head; chunks start at multiples of 8 (Sony Pictures Digital,
// "Sony Wave64", 2004). The fmt and fact chunks are those of WAV.

// GUIDs end alike but for that of the file itself.
const (
	w64RIFF = "riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
	w64Tail = "\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"
)

const w64HeadBytes = 24 // of a chunk: the first one's body starts with one more GUID, and then chunks

func sniffW64(head []byte) bool {
	return len(head) >= len(w64RIFF) && string(head[:len(w64RIFF)]) == w64RIFF
}

var w64Chunks = chunkLayout{title: "Wave64", idBytes: 16, sizeBytes: 8, order: binary.LittleEndian, align: 8, inclusive: true}

func openW64(ctx context.Context, s *source) (_ track, err error) {
	if !bytes.HasPrefix(s.head[min(w64HeadBytes, len(s.head)):], []byte("wave"+w64Tail)) {
		return nil, broken("The Wave64 file does not say that it holds audio.")
	}
	w := &wavFile{source: s, order: binary.LittleEndian, meta: about{container: "w64"}}
	walk, err := w64Chunks.walk(s, w64HeadBytes+16, "data"+w64Tail, func(c dataChunk) error {
		if c.id == w64RIFF {
			return broken("Another Wave64 file follows behind the first.")
		}
		part := wavChunk{id: c.id[:4], body: c.body, size: uint32(min(c.size, math.MaxUint32))}
		switch {
		case c.id[4:] != w64Tail:
			return nil
		case part.id == "fmt " && w.format != nil:
			return broken("The Wave64 file has two fmt chunks.")
		case part.id == "fmt ":
			w.format, err = w.parseFormat(part)
			return err
		case part.id == "fact":
			return w.parseFact(part)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if w.format == nil {
		return nil, broken("The Wave64 file has no fmt chunk.")
	}
	const noSize = 1 << 62 // programs who could not come back write 2^63-1, or less its head
	if walk.data.size >= noSize {
		walk.data.size = unknown
	}
	e := walk.extent(s, 0)
	w.place(e.at, e.claimed, e.hidden)
	return w.track(ctx)
}
