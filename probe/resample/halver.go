package resample

// halfTaps is the number of non-zero taps on each side of a halver's filter.
const halfTaps = 7

// halverReach is how many samples a halver looks ahead and back.
const halverReach = 2*halfTaps - 1

// halver drops every second sample after a half-band filter: flat up to an eighth of its input rate, stopped from three eighths on. What
// lies between is folded to above an eighth of the input rate, and the last stage removes it. A half-band filter is zero at every even tap
// but the middle one, which is 1/2.
type halver struct {
	taps [halfTaps]float32 // at the odd distances 1, 3, ..., on both sides
	buf  []float32         // the last inputs; buf[0] is halverReach before the next output's center
	next int               // index in buf of the next output's first sample
	n    int64             // inputs so far
}

func newHalver() *halver {
	h := &halver{buf: make([]float32, halverReach, 2*halverReach+2+chunk)}
	beta := kaiserBeta(attenuation + 10)
	sum := 0.0
	var taps [halfTaps]float64
	for i := range taps {
		d := float64(2*i + 1)
		taps[i] = sinc(d/2) / 2 * kaiser(d/(halverReach+1), beta)
		sum += 2 * taps[i]
	}
	for i := range taps {
		h.taps[i] = float32(taps[i] / sum / 2) // with the middle tap, the gain at 0 Hz is 1
	}
	return h
}

// push takes up to chunk samples and puts the outputs that they complete into out, which holds at least len(in)/2+1. It returns how many.
func (h *halver) push(out, in []float32) int {
	h.n += int64(len(in))
	h.buf = append(h.buf, in...)
	n := 0
	for ; h.next+2*halverReach < len(h.buf); h.next += 2 {
		x := h.buf[h.next : h.next+2*halverReach+1]
		y := 0.5 * x[halverReach]
		for i, c := range h.taps {
			d := 2*i + 1
			y += c * (x[halverReach-d] + x[halverReach+d])
		}
		out[n] = y
		n++
	}
	h.next -= h.drop(h.next)
	return n
}

// drop forgets the first samples of buf.
func (h *halver) drop(n int) int {
	kept := copy(h.buf, h.buf[n:])
	h.buf = h.buf[:kept]
	return n
}

// flush pushes the silence after the end that completes the last outputs.
func (h *halver) flush(out []float32) int {
	var silence [halverReach]float32
	return h.push(out, silence[:])
}
