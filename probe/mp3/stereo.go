package mp3

import "math"

// join undoes joint stereo (ISO 11172-3, section 2.4.3.4.9; ISO 13818-3, section 2.4.3.2).
func (d *Decoder) join(infos []granuleInfo) {
	left, right := &d.channel[0].lines, &d.channel[1].lines
	lines := max(infos[0].lines, infos[1].lines)
	switch {
	case d.header.intensity():
		d.intensity(infos)
	case d.header.midSide():
		midSide(left[:lines], right[:lines])
	default:
		return
	}
	infos[0].lines, infos[1].lines = lines, lines
}

func midSide(left, right []float32) {
	right = right[:len(left)]
	for i, m := range left {
		s := right[i]
		left[i], right[i] = (m+s)*(math.Sqrt2/2), (m-s)*(math.Sqrt2/2)
	}
}

// intensity undoes intensity stereo: in the bands above the last that is not silent on the right, both channels are made of the left one, in
// proportions that the scalefactors of the right one give. With short blocks, each window has its own last band.
func (d *Decoder) intensity(infos []granuleInfo) {
	layout, factors := infos[1].layout, &d.channel[1].factors
	bands := len(layout.widths)
	var audible [3]bool // by window
	at := granuleLines
	for band := bands - 1; band >= 0; band-- {
		width, window, transmitted := int(layout.widths[band]), 0, band
		at -= width
		switch {
		case band == layout.long-1: // they follow short ones, or nothing
			any := audible[0] || audible[1] || audible[2]
			audible = [3]bool{any, any, any}
			if layout.kind == longBlocks {
				transmitted-- // the last band takes the position of the one below
			}
		case band >= layout.long:
			window = (band - layout.long) % 3
			if band >= bands-3 {
				transmitted -= 3
			}
		}
		left, right := d.channel[0].lines[at:at+width], d.channel[1].lines[at:at+width]
		if !audible[window] && silent(right) && !factors.illegal[transmitted] {
			l, r := d.pan(int(factors.values[transmitted]), infos[1].scaling)
			for i, v := range left {
				left[i], right[i] = v*l, v*r
			}
			continue
		}
		audible[window] = audible[window] || !silent(right)
		if d.header.midSide() {
			midSide(left, right)
		}
	}
}

func silent(lines []float32) bool {
	for _, v := range lines {
		if v != 0 {
			return false
		}
	}
	return true
}

// pan gives the proportions of a position.
func (d *Decoder) pan(position, scaling int) (left, right float32) {
	if d.header.Version == MPEG1 {
		sin, cos := math.Sincos(float64(position) * (math.Pi / 12))
		return float32(sin / (sin + cos)), float32(cos / (sin + cos))
	}
	steps := (position + 1) / 2
	if scaling&1 != 0 {
		steps *= 2
	}
	less := float32(math.Exp2(-float64(steps) / 4))
	if position&1 != 0 {
		return less, 1
	}
	return 1, less
}
