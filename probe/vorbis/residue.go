package vorbis

// residue is the fine structure of the spectra of one or more channels (section 8).
type residue struct {
	kind       int
	begin, end int
	partition  int // values of each
	classes    int
	classBook  int
	books      [][8]int // by class and pass; -1: none
}

func (p *setupParser) residue() (x residue, err error) {
	r := p.bits
	if x.kind = r.read(16); x.kind > 2 {
		return x, damaged("a residue of type %d", x.kind)
	}
	x.begin, x.end = r.read(24), r.read(24)
	x.partition, x.classes, x.classBook = r.read(24)+1, r.read(6)+1, r.read(8)
	if err := p.book(x.classBook, false); err != nil {
		return x, err
	}
	if b := p.books[x.classBook]; !fits(x.classes, b.dimensions, b.entries) {
		return x, damaged("a residue with more classes than codewords for them")
	}
	cascade := make([]int, x.classes)
	for i := range cascade {
		cascade[i] = r.read(3)
		if r.flag() {
			cascade[i] |= r.read(5) << 3
		}
	}
	x.books = make([][8]int, x.classes)
	for i, passes := range cascade {
		for pass := range x.books[i] {
			x.books[i][pass] = -1
			if passes>>pass&1 == 0 {
				continue
			}
			book := r.read(8)
			if err := p.book(book, true); err != nil {
				return x, err
			}
			x.books[i][pass] = book
		}
	}
	return x, nil
}

// residueVectors are the spectra that a residue is added to: one after the other, or all of them interleaved as one.
type residueVectors struct {
	spectra [][]float32 // of the channels of a submap
	silent  []bool
	classes []int // scratch
}

// decode adds a residue to the spectra. It stops at the end of the packet.
func (x *residue) decode(r *bitReader, books []codebook, v *residueVectors) {
	vectors, size := len(v.spectra), 0
	if vectors > 0 {
		size = len(v.spectra[0])
	}
	skip := func(i int) bool { return v.silent[i] }
	if x.kind == 2 {
		all := true
		for _, s := range v.silent {
			all = all && s
		}
		vectors, size = min(vectors, 1), size*vectors
		skip = func(int) bool { return all }
	}
	begin, end := min(x.begin, size), min(x.end, size)
	partitions := max(end-begin, 0) / x.partition
	words := books[x.classBook].dimensions // partitions whose classes are coded together
	if need := vectors * partitions; cap(v.classes) < need {
		v.classes = make([]int, need)
	}
	for pass := range 8 {
		for at := 0; at < partitions; at += words {
			group := min(words, partitions-at)
			for i := 0; i < vectors && pass == 0; i++ {
				if !skip(i) && !x.readClasses(r, books, v.classes[i*partitions+at:][:group]) {
					return
				}
			}
			for n := at; n < at+group; n++ {
				for i := range vectors {
					if skip(i) {
						continue
					}
					book := x.books[v.classes[i*partitions+n]][pass]
					if book >= 0 && !x.add(r, &books[book], v, i, begin+n*x.partition) {
						return
					}
				}
			}
		}
	}
}

// readClasses reads the classes of some partitions: one number, of which they are the digits. The last ones may be cut off.
func (x *residue) readClasses(r *bitReader, books []codebook, classes []int) bool {
	book := &books[x.classBook]
	v := book.scalar(r)
	if v < 0 {
		return false
	}
	for i := book.dimensions - 1; i >= 0; i-- {
		if i < len(classes) {
			classes[i] = v % x.classes
		}
		v /= x.classes
	}
	return true
}

// add reads a partition and adds it to a vector from an index on.
func (x *residue) add(r *bitReader, book *codebook, v *residueVectors, vector, from int) bool {
	switch x.kind {
	case 0: // the dimensions are spread over the partition
		step := x.partition / book.dimensions
		out := v.spectra[vector][from:]
		for i := range step {
			values := book.vector(r)
			if values == nil {
				return false
			}
			for k, x := range values {
				out[i+k*step] += x
			}
		}
	case 1:
		for out := v.spectra[vector][from : from+x.partition]; len(out) > 0; {
			values := book.vector(r)
			if values == nil {
				return false
			}
			values = values[:min(len(values), len(out))]
			for k, x := range values {
				out[k] += x
			}
			out = out[len(values):]
		}
	default: // the channels are interleaved
		channels := len(v.spectra)
		channel, at := from%channels, from/channels
		for left := x.partition; left > 0; {
			values := book.vector(r)
			if values == nil {
				return false
			}
			values = values[:min(len(values), left)]
			for _, x := range values {
				v.spectra[channel][at] += x
				if channel++; channel == channels {
					channel, at = 0, at+1
				}
			}
			left -= len(values)
		}
	}
	return true
}
