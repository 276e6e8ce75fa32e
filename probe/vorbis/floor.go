package vorbis

import (
	"cmp"
	"math"
	"slices"
)

// floor is the spectral envelope of a channel. decode reads one from a packet; it is false where the channel is silent, which is also what the end of
// the packet means. apply multiplies a spectrum by the envelope that was read last.
type floor interface {
	decode(r *bitReader, books []codebook, curve *curve) bool
	apply(spectrum []float32, curve *curve)
}

// curve is what a floor read for a channel, in memory that is used again.
type curve struct {
	amplitude    float64 // floor 0: against its highest
	coefficients []float64
	y            []int // floor 1
	flat         []bool
}

// floor1 is a line through points (section 7.2).
type floor1 struct {
	partitions []int // classes
	classes    []floor1Class
	multiplier int
	x          []int // where the points are
	low, high  []int // for each point, those before it in x that are its neighbors
	order      []int // points by x
}

type floor1Class struct {
	dimensions, subclasses int // the latter in bits
	master                 int
	books                  []int // -1: none
}

func (p *setupParser) floor1() (floor, error) {
	r, f := p.bits, &floor1{}
	highest := -1
	for range r.read(5) {
		class := r.read(4)
		f.partitions = append(f.partitions, class)
		highest = max(highest, class)
	}
	for range highest + 1 {
		class, err := p.floor1Class()
		if err != nil {
			return nil, err
		}
		f.classes = append(f.classes, class)
	}
	f.multiplier = r.read(2) + 1
	width := r.read(4)
	f.x = []int{0, 1 << width}
	for _, class := range f.partitions {
		for range f.classes[class].dimensions {
			f.x = append(f.x, r.read(width))
		}
	}
	return f, f.arrange()
}

func (p *setupParser) floor1Class() (c floor1Class, err error) {
	r := p.bits
	c.dimensions, c.subclasses = r.read(3)+1, r.read(2)
	if c.subclasses > 0 {
		c.master = r.read(8)
		if err := p.book(c.master, false); err != nil {
			return c, err
		}
	}
	for range 1 << c.subclasses {
		book := r.read(8) - 1
		if err := p.book(max(book, 0), false); err != nil {
			return c, err
		}
		c.books = append(c.books, book)
	}
	return c, nil
}

// maxFloorPoints is the most points that a floor may have (section 7.2.2).
const maxFloorPoints = 65

// arrange sorts the points and finds their neighbors.
func (f *floor1) arrange() error {
	if len(f.x) > maxFloorPoints {
		return damaged("a floor of %d points", len(f.x))
	}
	f.low, f.high, f.order = make([]int, len(f.x)), make([]int, len(f.x)), make([]int, len(f.x))
	for i := range f.x {
		f.order[i] = i
		f.low[i], f.high[i] = 0, 1
		for j := range i {
			if f.x[j] < f.x[i] && f.x[j] > f.x[f.low[i]] {
				f.low[i] = j
			}
			if f.x[j] > f.x[i] && f.x[j] < f.x[f.high[i]] {
				f.high[i] = j
			}
		}
	}
	slices.SortFunc(f.order, func(a, b int) int { return cmp.Compare(f.x[a], f.x[b]) })
	for i := range f.order[1:] {
		if f.x[f.order[i]] == f.x[f.order[i+1]] {
			return damaged("a floor with two points at one place")
		}
	}
	return nil
}

var floor1Ranges = [4]int{256, 128, 86, 64}

func (f *floor1) decode(r *bitReader, books []codebook, c *curve) bool {
	if !r.flag() {
		return false
	}
	width := ilog(floor1Ranges[f.multiplier-1] - 1)
	c.y = append(c.y[:0], r.read(width), r.read(width))
	for _, n := range f.partitions {
		class := &f.classes[n]
		v := 0
		if class.subclasses > 0 {
			v = books[class.master].scalar(r)
		}
		for range class.dimensions {
			book := class.books[v&(1<<class.subclasses-1)]
			v >>= class.subclasses
			y := 0
			if book >= 0 {
				y = books[book].scalar(r)
			}
			c.y = append(c.y, y)
		}
		if r.ended {
			return false
		}
	}
	f.unwrap(c)
	return !r.ended
}

// unwrap turns what was read into heights: each point is coded by how far it is from the line between its neighbors (section 7.2.4, step 1). Points on
// that line need not be drawn.
func (f *floor1) unwrap(c *curve) {
	top := floor1Ranges[f.multiplier-1]
	c.flat = append(c.flat[:0], false, false)
	for i := 2; i < len(f.x); i++ {
		low, high := f.low[i], f.high[i]
		line := pointOnLine(f.x[low], c.y[low], f.x[high], c.y[high], f.x[i])
		v := c.y[i]
		c.flat = append(c.flat, v == 0)
		if v == 0 {
			c.y[i] = line
			continue
		}
		c.flat[low], c.flat[high] = false, false
		above, below := top-line, line
		switch room := 2 * min(above, below); {
		case v < room && v%2 == 1:
			v = line - (v+1)/2
		case v < room:
			v = line + v/2
		case above > below:
			v = v - below + line
		default:
			v = line - v + above - 1
		}
		c.y[i] = min(max(v, 0), top-1) // beyond are damaged packets
	}
}

// pointOnLine is the height of a line at x (section 9.2.6).
func pointOnLine(x0, y0, x1, y1, x int) int {
	return y0 + (y1-y0)*(x-x0)/(x1-x0)
}

func (f *floor1) apply(spectrum []float32, c *curve) {
	at, height := 0, c.y[0]*f.multiplier
	for _, i := range f.order[1:] {
		if c.flat[i] {
			continue
		}
		x, y := f.x[i], c.y[i]*f.multiplier
		drawLine(spectrum, at, height, x, y)
		at, height = x, y
	}
	for i := at; i < len(spectrum); i++ {
		spectrum[i] *= decibels[min(height, len(decibels)-1)]
	}
}

// drawLine multiplies spectrum by the points of a line from x0 up to x1, which it excludes (section 9.2.7). Lines end beyond the spectrum of
// short blocks.
func drawLine(spectrum []float32, x0, y0, x1, y1 int) {
	dx, dy := x1-x0, y1-y0
	base, step := dy/dx, 1
	if dy < 0 {
		step = -1
	}
	rise := max(dy, -dy) - max(base, -base)*dx
	y, slip := y0, 0
	for x := x0; x < min(x1, len(spectrum)); x++ {
		spectrum[x] *= decibels[min(y, len(decibels)-1)]
		y += base
		if slip += rise; slip >= dx {
			slip -= dx
			y += step
		}
	}
}

// decibels are the amplitudes of heights: from -140 dB in 256 steps up to 0 dB (section 10.1).
var decibels = func() (t [256]float32) {
	for i := range t {
		t[i] = float32(math.Pow(10, 7*float64(i+1)/256-7))
	}
	return t
}()

// floor0 is the response of a filter, whose line spectral pairs are coded (section 6.2). No encoder has written it since 2001.
type floor0 struct {
	order, rate, bark int
	amplitudeBits     int
	offset            int // dB
	books             []int
}

func (p *setupParser) floor0() (floor, error) {
	r := p.bits
	f := &floor0{order: r.read(8), rate: r.read(16), bark: r.read(16), amplitudeBits: r.read(6), offset: r.read(8)}
	if f.order == 0 || f.rate == 0 || f.bark == 0 {
		return nil, damaged("a floor of order %d, rate %d, map size %d", f.order, f.rate, f.bark)
	}
	for range r.read(4) + 1 {
		book := r.read(8)
		if err := p.book(book, true); err != nil {
			return nil, err
		}
		f.books = append(f.books, book)
	}
	return f, nil
}

func (f *floor0) decode(r *bitReader, books []codebook, c *curve) bool {
	half := f.amplitudeBits / 2 // it may have 63 bits
	amplitude := float64(r.read(half)) + math.Ldexp(float64(r.read(f.amplitudeBits-half)), half)
	if amplitude == 0 {
		return false
	}
	c.amplitude = amplitude / (math.Ldexp(1, f.amplitudeBits) - 1)
	n := r.read(ilog(len(f.books)))
	if n >= len(f.books) {
		return false
	}
	c.coefficients = c.coefficients[:0]
	last := 0.0
	for len(c.coefficients) < f.order {
		v := books[f.books[n]].vector(r)
		if v == nil {
			return false
		}
		for _, x := range v {
			c.coefficients = append(c.coefficients, float64(x)+last)
		}
		last = c.coefficients[len(c.coefficients)-1]
	}
	c.coefficients = c.coefficients[:f.order]
	return !r.ended
}

func (f *floor0) apply(spectrum []float32, c *curve) {
	for i, x := range c.coefficients {
		c.coefficients[i] = 2 * math.Cos(x)
	}
	last, value := -1, float32(0)
	nyquist := float64(f.rate) / 2
	for i := range spectrum {
		at := min(int(bark(nyquist*float64(i)/float64(len(spectrum)))*float64(f.bark)/bark(nyquist)), f.bark-1)
		if at != last {
			last, value = at, f.value(c, math.Pi*float64(at)/float64(f.bark))
		}
		spectrum[i] *= value
	}
}

// value is the amplitude at a frequency, in radians.
func (f *floor0) value(c *curve, w float64) float32 {
	x := 2 * math.Cos(w)
	p, q := 0.5, 0.5
	for i, v := range c.coefficients {
		if i%2 == 0 {
			q *= v - x
		} else {
			p *= v - x
		}
	}
	if f.order%2 == 0 {
		p *= p * (2 - x)
		q *= q * (2 + x)
	} else {
		p *= p * (4 - x*x)
		q *= q
	}
	db := float64(f.offset) * (c.amplitude/math.Sqrt(p+q) - 1)
	return float32(math.Exp(0.11512925 * db))
}

func bark(hz float64) float64 {
	return 13.1*math.Atan(0.00074*hz) + 2.24*math.Atan(0.0000000185*hz*hz) + 0.0001*hz
}
