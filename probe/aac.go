package probe

// asc is what an AudioSpecificConfig says about AAC (ISO 14496-3, section 1.6.2.1).
type asc struct {
	rate     int   // Hz, of what is decoded: twice the core's rate with explicit SBR
	channels int   // of what is decoded: two for one with explicit parametric stereo
	frames   int64 // sample frames of every packet, at rate
}

// Audio object types (ISO 14496-3, table 1.17).
const (
	aotMain, aotLC, aotLTP, aotSBR = 1, 2, 4, 5
	aotERLC, aotERLD, aotPS        = 17, 23, 29
	aotELD                         = 39
)

// otherAOTs names object types that are not decoded.
var otherAOTs = map[int]string{
	3: "AAC-SSR", 6: "scalable AAC", 7: "TwinVQ", 8: "CELP", 9: "HVXC", 12: "TTSI", 19: "error resilient AAC-LTP", 20: "scalable AAC",
	22: "BSAC", 24: "error resilient CELP", 25: "HVXC", 26: "HILN", 28: "SSC", 32: "MPEG Layer I", 33: "MPEG Layer II", 34: "MP3", 36: "MPEG-4 ALS",
	37: "MPEG-4 SLS", 42: "xHE-AAC (USAC)",
}

var (
	// aacRates are the rates by index (table 1.18).
	aacRates = [...]int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}
	// aacChannels are the numbers of channels by configuration (table 1.19); 0 is reserved, or a program config element.
	aacChannels = [16]int{1: 1, 2, 3, 4, 5, 6, 8, 11: 7, 8, 24, 8}
)

// parseAudioSpecificConfig refuses what cannot be parsed, and the kinds of AAC that are not decoded. SBR and parametric stereo that only the
// packets tell of (implicit signaling) do not show here: the duration is the same, and the rate the core's.
func parseAudioSpecificConfig(b []byte) (asc, error) {
	r := &ascReader{b: b}
	kind, rate, configuration := r.objectType(), r.rate(), int(r.bits(4))
	extended, sbr, ps := 0, false, false
	if kind == aotSBR || kind == aotPS {
		sbr, ps, extended = true, kind == aotPS, r.rate()
		kind = r.objectType()
	}
	switch kind {
	case aotMain, aotLC, aotLTP, aotERLC, aotERLD, aotELD:
	default:
		if name, ok := otherAOTs[kind]; ok {
			return asc{}, unsupported("The file holds %s, a kind of AAC or a relative of it that is not supported.", name)
		}
		return asc{}, broken("The AAC configuration has the unknown object type %d.", kind)
	}
	a := asc{rate: rate, channels: aacChannels[configuration], frames: 1024}
	if err := r.specific(kind, configuration, &a); err != nil {
		return asc{}, err
	}
	if !sbr {
		if extended = r.syncExtension(); extended > 0 {
			sbr, ps = true, r.left() >= 12 && r.bits(11) == 0x548 && r.bits(1) == 1
		}
	}
	if r.short {
		return asc{}, broken("The AAC configuration ends within itself.")
	}
	if err := checkLimits(int64(a.rate), int64(a.channels)); err != nil {
		return asc{}, err
	}
	if !sbr {
		return a, nil
	}
	if extended != a.rate && extended != 2*a.rate {
		return asc{}, broken("The AAC configuration extends %d Hz to %d Hz, which is neither the same nor twice as much.", a.rate, extended)
	}
	a.frames *= int64(extended / a.rate)
	a.rate = extended
	if ps && a.channels == 1 {
		a.channels = 2
	}
	return a, checkLimits(int64(a.rate), int64(a.channels))
}

// specific reads the part that depends on the object type: frame length and, where the configuration does not give it, the channels.
func (r *ascReader) specific(kind, configuration int, a *asc) error {
	short := r.bits(1) == 1
	a.frames = aacFrames(kind, short)
	if kind == aotELD { // ELDSpecificConfig, section 4.6.20.3
		r.bits(3) // resilience
		if r.bits(1) == 1 {
			return unsupported("The file holds AAC-ELD with low delay SBR, which is not supported.")
		}
		for r.bits(4) != 0 && !r.short { // extensions, up to ELDEXT_TERM
			n := r.bits(4)
			if n == 15 {
				n += r.bits(8)
				if n == 15+255 {
					n += r.bits(16)
				}
			}
			r.skip(8 * int(n))
		}
	} else { // GASpecificConfig, section 4.4.1
		if r.bits(1) == 1 {
			r.bits(14) // the core coder's delay
		}
		extension := r.bits(1) == 1
		if configuration == 0 {
			a.channels = r.programConfig()
		}
		if extension && kind != aotLC && kind != aotMain && kind != aotLTP {
			r.bits(3) // resilience
		}
		if extension {
			r.bits(1)
		}
	}
	if kind >= aotERLC && r.bits(2) != 0 {
		return unsupported("The file holds AAC with error protection, which is not supported.")
	}
	return nil
}

// aacFrames is how many sample frames a packet's core decodes to.
func aacFrames(kind int, short bool) int64 {
	lowDelay := kind == aotERLD || kind == aotELD
	switch {
	case lowDelay && short:
		return 480
	case lowDelay:
		return 512
	case short:
		return 960
	}
	return 1024
}

// syncExtension is the extended rate of backward compatible explicit signaling; 0 if there is none.
func (r *ascReader) syncExtension() int {
	if r.left() < 16 || r.bits(11) != 0x2B7 || r.objectType() != aotSBR || r.bits(1) == 0 {
		return 0
	}
	return r.rate()
}

// programConfig counts the channels of a program_config_element (table 4.2).
func (r *ascReader) programConfig() int {
	r.bits(4 + 2 + 4) // tag, profile, rate: those outside apply
	front, side, back, lfe := int(r.bits(4)), int(r.bits(4)), int(r.bits(4)), int(r.bits(2))
	data, coupling := int(r.bits(3)), int(r.bits(4))
	for _, n := range []int{4, 4, 3} { // the mix-down elements, each behind a bit
		if r.bits(1) == 1 {
			r.bits(n)
		}
	}
	channels := lfe
	for range front + side + back {
		channels += 1 + int(r.bits(1)) // a pair has two
		r.bits(4)
	}
	r.skip(4*lfe + 4*data + 5*coupling)
	r.skip(-r.at & 7)
	r.skip(8 * int(r.bits(8))) // a comment
	return channels
}

// ascReader reads bits. Beyond the end it gives zeros and remembers that.
type ascReader struct {
	b     []byte
	at    int // bits
	short bool
}

func (r *ascReader) left() int { return 8*len(r.b) - r.at }

func (r *ascReader) skip(n int) {
	if n > r.left() {
		r.short = true
		n = r.left()
	}
	r.at += n
}

func (r *ascReader) bits(n int) (v uint32) {
	for range n {
		v <<= 1
		if r.at < 8*len(r.b) {
			v |= uint32(r.b[r.at/8]>>(7-r.at%8)) & 1
			r.at++
		} else {
			r.short = true
		}
	}
	return v
}

func (r *ascReader) objectType() int {
	if v := r.bits(5); v != 31 {
		return int(v)
	}
	return 32 + int(r.bits(6))
}

// rate is a rate by its index, or itself; 0 for reserved indexes.
func (r *ascReader) rate() int {
	switch i := r.bits(4); {
	case i == 15:
		return int(r.bits(24))
	case int(i) < len(aacRates):
		return aacRates[i]
	}
	return 0
}
