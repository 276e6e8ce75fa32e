package vorbis

import "encoding/binary"

// bitWriter is the reverse of bitReader.
type bitWriter struct {
	b []byte
	n int
}

func (w *bitWriter) put(v, width int) *bitWriter {
	for i := range width {
		if w.n%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[w.n/8] |= byte(v >> i & 1 << (w.n % 8))
		w.n++
	}
	return w
}

// identification is the first header packet.
func identification(channels, rate, short, long int) []byte {
	b := append([]byte("\x01vorbis\x00\x00\x00\x00"), byte(channels))
	b = binary.LittleEndian.AppendUint32(b, uint32(rate))
	return append(b, append(make([]byte, 12), byte(short|long<<4), 1)...)
}

// Parts of a setup header, for tests to leave out, repeat or change.

func (w *bitWriter) codebook(dimensions int, lengths ...int) *bitWriter {
	w.put(0x564342, 24).put(dimensions, 16).put(len(lengths), 24).put(0, 1).put(1, 1)
	for _, n := range lengths {
		if w.put(min(n, 1), 1); n > 0 {
			w.put(n-1, 5)
		}
	}
	return w
}

func (w *bitWriter) noLookup() *bitWriter { return w.put(0, 4) }

// lookup gives vectors of the kind that lists all values: 0, 1, 2 and so on, less low.
func (w *bitWriter) lookup(values, low int) *bitWriter {
	w.put(2, 4)
	w.put(1<<31|788<<21|low, 32).put(788<<21|1, 32).put(7, 4).put(0, 1)
	for i := range values {
		w.put(i, 8)
	}
	return w
}

// flatFloor is a line from 0 to the given x.
func (w *bitWriter) flatFloor(rangeBits int) *bitWriter {
	return w.put(1, 16).put(0, 5).put(1, 2).put(rangeBits, 4) // type 1, no partitions, multiplier 2: 7 bits for a height
}

func (w *bitWriter) residue(kind, begin, end, partition, classBook int, books ...int) *bitWriter {
	w.put(kind, 16).put(begin, 24).put(end, 24).put(partition-1, 24).put(len(books)-1, 6).put(classBook, 8)
	for _, b := range books {
		w.put(b2i(b >= 0), 3).put(0, 1) // its first pass, if any
	}
	for _, b := range books {
		if b >= 0 {
			w.put(b, 8)
		}
	}
	return w
}

// simpleSetup has a codebook for classes and one of four values, -1 to 2, and one mode per given block flag. Channels are coupled if there are two.
func simpleSetup(channels, residueKind int, modes ...int) []byte {
	w := &bitWriter{b: []byte("\x05vorbis"), n: 7 * 8}
	w.put(1, 8).codebook(1, 1, 1).noLookup().codebook(1, 2, 2, 2, 2).lookup(4, 1)
	w.put(0, 6).put(0, 16)
	w.put(0, 6).flatFloor(5)
	w.put(0, 6).residue(residueKind, 0, 64, 4, 0, -1, 1)
	w.put(0, 6).put(0, 16).put(0, 1)
	if channels == 2 {
		w.put(1, 1).put(0, 8).put(0, 1).put(1, 1)
	} else {
		w.put(0, 1)
	}
	w.put(0, 2).put(0, 8).put(0, 8).put(0, 8)
	w.put(len(modes)-1, 6)
	for _, long := range modes {
		w.put(long, 1).put(0, 16).put(0, 16).put(0, 8)
	}
	return w.put(1, 1).b
}
