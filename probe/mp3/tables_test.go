package mp3

import (
	"math"
	"testing"
)

// A code of which a digit is wrong is not complete, gives a value twice, or (together with ISO's table of lengths, here as their sum) another one.
func TestCodebooks(t *testing.T) {
	t.Parallel()
	check := func(name any, b codebook, digits, values int) {
		if len(b.lengths) != values || len(b.values) != digits*values {
			t.Errorf("%v: %d lengths, %d digits; want %d values", name, len(b.lengths), len(b.values), values)
			return
		}
		seen := map[int]bool{}
		sum := 0.0
		side := int(math.Sqrt(float64(values)))
		b.words(digits, func(word uint32, length, value int) {
			sum += math.Exp2(-float64(length))
			if seen[value] || digits == 2 && (value>>4 >= side || value&15 >= side) {
				t.Errorf("%v: the value %x is there twice, or does not belong there", name, value)
			}
			seen[value] = true
			if at := uint64(word) >> (32 - length) << (32 - length); at != uint64(word) {
				t.Errorf("%v: the word %x has more than %d bits", name, word, length)
			}
		})
		if sum != 1 {
			t.Errorf("%v: the words fill %v of the code", name, sum)
		}
	}
	for number, b := range codebooks {
		side := map[int]int{1: 2, 2: 3, 3: 3, 5: 4, 6: 4, 7: 6, 8: 6, 9: 6, 10: 8, 11: 8, 12: 8, 13: 16, 15: 16, 16: 16, 24: 16}[number]
		check(number, b, 2, side*side)
	}
	for i, b := range quadbooks {
		check(string(rune('A'+i)), b, 1, 16)
	}
}

// The lookups find every word, whatever follows it.
func TestLookups(t *testing.T) {
	t.Parallel()
	tables := theTables()
	for i, table := range tables.pairs {
		if table == nil {
			if i != 0 && i != 4 && i != 14 {
				t.Errorf("code %d is missing", i)
			}
			continue
		}
		number := i
		switch {
		case i >= 24:
			number = 24
		case i >= 16:
			number = 16
		}
		codebooks[number].words(2, func(word uint32, length, value int) {
			for _, behind := range []uint64{0, math.MaxUint64} {
				v := uint64(word)<<32 | behind>>length
				e := table[v>>(64-pairBits)]
				got := 0
				if e&linked != 0 {
					got = pairBits
					v <<= pairBits
					e = table[uint64(e&^linked>>13)+v>>(64-e>>8&31)]
				}
				if got += int(e >> 8); got != length || int(e&0xFF) != value {
					t.Errorf("code %d: %032b of %d bits is found as %x of %d bits, want %x", i, word, length, e&0xFF, got, value)
				}
			}
		})
	}
}

// The synthesis filter is a low-pass of 1/64 of the band: a smooth curve, whose shifted copies, weighted as the filter bank does, add up to a
// constant. (The gain of subband 0 and its mirror images, summed, is flat.)
func TestPrototype(t *testing.T) {
	t.Parallel()
	at := func(i int) float64 {
		if i > 256 {
			i = 512 - i
		}
		return float64(prototype[i]) / 65536
	}
	sum := 0.0
	for i := range 513 {
		if i > 0 && i < 512 {
			sum += at(i)
		}
		if i >= 2 && i <= 510 {
			bend := (at(i+1) - at(i)) - (at(i) - at(i-1)) - ((at(i) - at(i-1)) - (at(i-1) - at(i-2)))
			if math.Abs(bend)*65536 > 9 {
				t.Errorf("the filter is not smooth at %d: %v", i, bend*65536)
			}
		}
	}
	if math.Abs(sum-64) > 0.01 {
		t.Errorf("the filter passes a constant times %v, want 64", sum)
	}
	// Power complementary: |H(f)|^2 + |H(1/64-f)|^2 is constant for f from 0 to 1/64 of the rate.
	gain := func(f float64) float64 {
		var re, im float64
		for i := 1; i < 512; i++ {
			sin, cos := math.Sincos(2 * math.Pi * f * float64(i))
			re, im = re+at(i)*cos, im+at(i)*sin
		}
		return re*re + im*im
	}
	for f := 0.0; f <= 1.0/64; f += 1.0 / 2048 {
		if g := gain(f) + gain(1.0/64-f); math.Abs(g/(64*64)-1) > 1e-3 {
			t.Errorf("at %v of the rate, the gains add up to %v", f, g/(64*64))
		}
	}
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	for rate := range layouts {
		for _, l := range layouts[rate] {
			lines := 0
			for _, w := range l.widths {
				lines += int(w)
			}
			long := longStart(rate, l.long)
			if (lines != granuleLines || l.kind == mixedBlocks && long != 36) && (l.kind != mixedBlocks || rate != rate8000) {
				t.Errorf("rate %d, kind %d: %d lines, %d of them long", rate, l.kind, lines, long)
			}
			for coding, counts := range scalefactorCounts {
				sum := 0
				for _, n := range counts[l.kind] {
					sum += int(n)
				}
				want := map[int]int{longBlocks: 21, shortBlocks: 36, mixedBlocks: 33}[l.kind]
				if coding == 3 && l.kind == mixedBlocks {
					want = 33
				}
				if sum != want && rate >= 3 {
					t.Errorf("coding %d, kind %d: %d scalefactors, want %d", coding, l.kind, sum, want)
				}
			}
		}
	}
}

// The fast transforms are the sums that they stand for.
func TestTransforms(t *testing.T) {
	t.Parallel()
	x := noise(1)
	value := func() float32 { return float32(x.below(2000)-1000) / 1000 }
	near := func(name string, i int, got float32, want float64) {
		if math.Abs(float64(got)-want) > 2e-5 {
			t.Errorf("%s: output %d is %v, want %v", name, i, got, want)
		}
	}
	for range 20 {
		var in, out [32]float32
		for i := range in {
			in[i] = value()
		}
		cosines32(&out, &in)
		for n := range out {
			want := 0.0
			for k, s := range in {
				want += float64(s) * math.Cos(math.Pi/64*float64(n*(2*k+1)))
			}
			near("cosines32", n, out[n], want)
		}
		tables := theTables()
		lines := [subbandLines]float32(in[:])
		var block [2 * subbandLines]float32
		longBlock(&block, &lines, &tables.blocks[normalBlock])
		for i := range block {
			near("long block", i, block[i], math.Sin(math.Pi/36*(float64(i)+0.5))*inverseMDCT(lines[:], i))
		}
		tables.shortBlocks(&block, &lines)
		var want [2 * subbandLines]float64
		for w := range 3 {
			var six []float32
			for k := range 6 {
				six = append(six, lines[3*k+w])
			}
			for i := range 12 {
				want[6+6*w+i] += math.Sin(math.Pi/12*(float64(i)+0.5)) * inverseMDCT(six, i)
			}
		}
		for i := range block {
			near("short blocks", i, block[i], want[i])
		}
	}
}

// inverseMDCT is output i of the sum in the standard (ISO 11172-3, section 2.4.3.4.10.2).
func inverseMDCT(x []float32, i int) (sum float64) {
	n := len(x)
	for k, v := range x {
		sum += float64(v) * math.Cos(math.Pi/float64(4*n)*float64((2*i+1+n)*(2*k+1)))
	}
	return sum
}
