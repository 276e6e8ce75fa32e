package flac

import "encoding/binary"

// packer writes bits, most significant first.
type packer struct {
	b    []byte
	acc  uint64 // its low bits are to be written
	held uint   // how many; below 32
}

func (p *packer) reset() { p.b, p.acc, p.held = p.b[:0], 0, 0 }

// put writes the low n bits of v, n up to 32; the others are zero.
func (p *packer) put(v uint64, n uint) {
	p.acc = p.acc<<n | v
	if p.held += n; p.held >= 32 {
		p.held -= 32
		p.b = binary.BigEndian.AppendUint32(p.b, uint32(p.acc>>p.held))
	}
}

// signed writes v as a two's complement number of n bits.
func (p *packer) signed(v int32, n uint) { p.put(uint64(v)&(1<<n-1), n) }

// rice writes a folded number with k low bits.
func (p *packer) rice(v uint32, k uint) {
	zeros := uint(v >> k)
	low := uint64(v)&(1<<k-1) | 1<<k
	if zeros+1+k <= 32 {
		p.put(low, zeros+1+k)
		return
	}
	for ; zeros > 32; zeros -= 32 {
		p.put(0, 32)
	}
	p.put(0, zeros)
	p.put(low, k+1)
}

// align fills the last byte with zeros and writes it all out.
func (p *packer) align() {
	p.put(0, -p.held%8)
	for ; p.held > 0; p.held -= 8 {
		p.b = append(p.b, byte(p.acc>>(p.held-8)))
	}
}
