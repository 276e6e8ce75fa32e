package flac

import (
	"math"
	"math/bits"
)

// maxPartitionOrder is the most that a residual is divided, to 64 parts. The streamable subset allows 8; beyond 6 little is gained.
const maxPartitionOrder = 6

// ricePlan is how a residual is to be coded: in equal parts, whose numbers have a parameter each (RFC 9639, section 9.2.7).
type ricePlan struct {
	bits       uint64 // what that takes, about
	order      uint   // the binary logarithm of the number of parts
	parameters [1 << maxPartitionOrder]uint8
}

// The largest parameters of 4 and of 5 bits; all ones mean something else.
const (
	maxShortParameter = 14
	maxLongParameter  = 30
)

// planFor finds the best division of the residual of a block, whose predictor has the given order.
func (a *attempt) planFor(block, order int, width uint) {
	finest := uint(0)
	for finest < maxPartitionOrder && block%(2<<finest) == 0 && block>>(finest+1) > max(order, minPart-1) {
		finest++
	}
	var all [1 << maxPartitionOrder]uint64
	sums := all[:1<<finest]
	size := block >> finest
	rest := a.residual
	for i := range sums {
		n := size
		if i == 0 {
			n -= order
		}
		sum := uint64(0)
		for _, v := range rest[:n] {
			sum += uint64(v)
		}
		sums[i], rest = sum, rest[n:]
	}
	most, parameterBits := uint(maxShortParameter), uint64(4)
	if width > 16 {
		most, parameterBits = maxLongParameter, 5
	}
	a.plan.bits = math.MaxUint64
	var parameters [1 << maxPartitionOrder]uint8
	for partition := int(finest); partition >= 0; partition-- {
		sums = sums[:1<<partition]
		cost := uint64(2 + 4)
		for i, sum := range sums {
			n := block >> partition
			if i == 0 {
				n -= order
			}
			k, bits := riceParameter(sum, uint64(n), most)
			parameters[i] = uint8(k)
			cost += parameterBits + bits
		}
		if cost < a.plan.bits {
			a.plan.bits, a.plan.order, a.plan.parameters = cost, uint(partition), parameters
		}
		for i := range len(sums) / 2 {
			sums[i] = sums[2*i] + sums[2*i+1]
		}
	}
}

// minPart is how many numbers a part has at least.
const minPart = 16

// riceParameter picks the parameter for n numbers with that sum, and says how many bits they take. That is an estimate: each number takes k low
// bits, a one, and as many zeros as its rest says. The low bits that are cut off are taken to be (2^k-1)/2 on average, by which the best
// parameter is that of the mean's highest bit.
func riceParameter(sum, n uint64, most uint) (k uint, cost uint64) {
	if n == 0 {
		return 0, 0
	}
	if mean := sum / n; mean > 0 {
		k = min(uint(bits.Len64(mean))-1, most)
	}
	return k, n*uint64(k+1) + (sum-n*(1<<k-1)/2)>>k
}

// write writes the residual of a block.
func (r *ricePlan) write(p *packer, residual []uint32, block, order int) {
	method, parameterBits := uint64(0), uint(4)
	for _, k := range r.parameters[:1<<r.order] {
		if k > maxShortParameter {
			method, parameterBits = 1, 5
		}
	}
	p.put(method, 2)
	p.put(uint64(r.order), 4)
	n := block>>r.order - order
	for _, k := range r.parameters[:1<<r.order] {
		p.put(uint64(k), parameterBits)
		for _, v := range residual[:n] {
			p.rice(v, uint(k))
		}
		residual = residual[n:]
		n = block >> r.order
	}
}
