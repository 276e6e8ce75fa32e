package flac

import (
	"encoding/binary"
	"math/bits"
)

// subframe reads one channel's part of a frame (RFC 9639, section 9.2). With x, it decodes to len(x) samples of width bits; with nil, it
// only finds the end of the subframe, and a constant one costs nothing whatever its length.
func (d *Decoder) subframe(x []int64, block int, width uint) error {
	r := d.bits
	head := r.read(8)
	if head&0x80 != 0 {
		return damaged("a subframe whose first bit is set")
	}
	kind := int(head >> 1 & 0x3F)
	wasted := uint(0)
	if head&1 != 0 {
		wasted = uint(r.unary(32)) + 1
	}
	if r.err == nil && wasted >= width {
		return damaged("%d wasted bits of %d", wasted, width)
	}
	width -= min(wasted, width-1)
	var err error
	switch {
	case kind == 0:
		d.constant(x, width)
	case kind == 1:
		d.verbatim(x, block, width)
	case kind >= 8 && kind <= 12:
		err = d.fixed(x, block, width, kind-8)
	case kind >= 32:
		err = d.linear(x, block, width, kind-31)
	default:
		err = damaged("a reserved subframe type %d", kind)
	}
	for i := range x {
		x[i] <<= wasted
	}
	if r.err != nil {
		return r.err
	}
	return err
}

func (d *Decoder) constant(x []int64, width uint) {
	v := d.bits.signed(width)
	for i := range x {
		x[i] = v
	}
}

// verbatim reads n samples, which are the first of x or, without x, are skipped.
func (d *Decoder) verbatim(x []int64, n int, width uint) {
	for i := 0; i < n && d.bits.err == nil; i++ {
		v := d.bits.signed(width)
		if x != nil {
			x[i] = v
		}
	}
}

// fixedCoefficients predict with polynomials (RFC 9639, section 9.2.5), the oldest sample first.
var fixedCoefficients = [5][]int64{{}, {1}, {-1, 2}, {1, -3, 3}, {-1, 4, -6, 4}}

func (d *Decoder) fixed(x []int64, block int, width uint, order int) error {
	if order > block {
		return damaged("a predictor of order %d for %d samples", order, block)
	}
	d.verbatim(x, order, width)
	if err := d.residual(x, block, order); err != nil {
		return err
	}
	predict(x, fixedCoefficients[order], 0)
	return nil
}

func (d *Decoder) linear(x []int64, block int, width uint, order int) error {
	if order > block {
		return damaged("a predictor of order %d for %d samples", order, block)
	}
	r := d.bits
	d.verbatim(x, order, width)
	precision := uint(r.read(4)) + 1
	shift := r.signed(5)
	if r.err == nil && (precision == 16 || shift < 0) {
		return damaged("a predictor of precision %d, shifted by %d", precision, shift)
	}
	var c [32]int64
	for i := order - 1; i >= 0; i-- { // the newest sample's coefficient comes first
		c[i] = r.signed(precision)
	}
	if err := d.residual(x, block, order); err != nil {
		return err
	}
	predict(x, c[:order], uint(max(shift, 0)))
	return nil
}

// predict adds to each sample after the first len(c) what the len(c) samples before it predict; c has the oldest one's coefficient first.
// Hostile streams wrap around: that is defined in Go, and what comes out is clamped by the caller.
func predict(x, c []int64, shift uint) {
	n := len(c)
	for i := n; i < len(x); i++ {
		past := x[i-n : i]
		past = past[:len(c)]
		sum := int64(0)
		for j, v := range c {
			sum += v * past[j]
		}
		x[i] += sum >> shift
	}
}

// residual reads what the predictor of the given order missed, into x from index order on (RFC 9639, section 9.2.7).
func (d *Decoder) residual(x []int64, block, order int) error {
	r := d.bits
	method := r.read(2)
	if method > 1 {
		return damaged("a reserved residual coding %d", method)
	}
	parameterBits := uint(4 + method)
	parts := 1 << r.read(4)
	size := block / parts
	if size*parts != block || size < order {
		return damaged("%d residual partitions for %d samples and order %d", parts, block, order)
	}
	at := order
	for p := range parts {
		end := (p + 1) * size
		k := uint(r.read(parameterBits))
		var part []int64
		if x != nil {
			part = x[at:end]
		}
		if k == 1<<parameterBits-1 {
			d.escaped(part, end-at)
		} else {
			d.rice(part, end-at, k)
		}
		if r.err != nil {
			return r.err
		}
		at = end
	}
	return nil
}

// escaped reads a partition of plain numbers.
func (d *Decoder) escaped(x []int64, n int) {
	width := uint(d.bits.read(5))
	if width > 0 {
		d.verbatim(x, n, width)
		return
	}
	clear(x)
}

// rice reads n Rice-coded numbers with k low bits each. Without x it skips them.
func (d *Decoder) rice(x []int64, n int, k uint) {
	r := d.bits
	for i := range n {
		var v uint64
		if r.pos+64 <= r.end {
			// The usual case, in one look: the whole number lies within the 57 bits that are surely loaded.
			w := binary.BigEndian.Uint64(r.buf[r.pos/8:]) << (r.pos % 8)
			q := uint(bits.LeadingZeros64(w))
			if q+1+k <= 57 {
				v = uint64(q)<<k | w<<(q+1)>>(64-k)
				r.pos += int(q + 1 + k)
				if x != nil {
					x[i] = int64(v>>1) ^ -int64(v&1)
				}
				continue
			}
		}
		v = r.unary(1<<32>>k)<<k | r.read(k)
		if r.err != nil {
			return
		}
		if x != nil {
			x[i] = int64(v>>1) ^ -int64(v&1)
		}
	}
}
