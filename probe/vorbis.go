package probe

import (
	"errors"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/vorbis"
)

// Vorbis in packets, as Ogg and Matroska hold it. They are read by probe/vorbis.

// maxVorbisSetupBytes bounds the packet with the codebooks; encoders write 3 to 8 kB. It is also what is allowed for the three headers together
// where a container keeps them as one.
const maxVorbisSetupBytes = 128 << 10

// vorbisTiming counts the frames of packets without decoding them.
type vorbisTiming struct {
	rate, channels int
	info           vorbis.Info
	previous       int // length of the last packet's block; 0 before the first
}

// newVorbisTiming reads the three header packets in Xiph lacing, as Matroska keeps them.
func newVorbisTiming(setup []byte) (*vorbisTiming, error) {
	identification, codebooks, err := unlaceVorbis(setup)
	if err != nil {
		return nil, err
	}
	return vorbisTimingOf(identification, codebooks)
}

// vorbisTimingOf is the same with the first and the third header packet.
func vorbisTimingOf(identification, setup []byte) (*vorbisTiming, error) {
	info, err := vorbis.ParseInfo(identification, setup)
	if err != nil {
		return nil, vorbisError(err, "The headers of the Vorbis stream are damaged.")
	}
	if err := checkLimits(int64(info.Rate), int64(info.Channels)); err != nil {
		return nil, err
	}
	return &vorbisTiming{rate: info.Rate, channels: info.Channels, info: info}, nil
}

// frames says how many frames a packet gives. The first one gives none: its block only begins to overlap. Empty packets, which mean nothing, occur.
func (t *vorbisTiming) frames(packet []byte) (int64, error) {
	if len(packet) == 0 {
		return 0, nil
	}
	n, err := t.info.Block(packet)
	if err != nil {
		return 0, vorbisError(err, "A Vorbis packet is damaged.")
	}
	frames := 0
	if t.previous > 0 {
		frames = t.previous/4 + n/4
	}
	t.previous = n
	return int64(frames), nil
}

// reset makes the next packet the first.
func (t *vorbisTiming) reset() { t.previous = 0 }

func vorbisError(err error, detail string) error {
	if errors.Is(err, vorbis.ErrTooLarge) {
		return aviary.WrapError(aviary.CodeAudioBroken, "", err, "The codebooks of the Vorbis stream are larger than any encoder's.")
	}
	return aviary.WrapError(aviary.CodeAudioBroken, "", err, "%s", detail)
}

// laceVorbis packs header packets as Matroska does: one less than their number, the sizes of all but the last, and the packets.
func laceVorbis(packets ...[]byte) []byte {
	b := []byte{byte(len(packets) - 1)}
	for _, p := range packets[:len(packets)-1] {
		n := len(p)
		for ; n >= 255; n -= 255 {
			b = append(b, 255)
		}
		b = append(b, byte(n))
	}
	for _, p := range packets {
		b = append(b, p...)
	}
	return b
}

// unlaceVorbis finds the first and the third header packet.
func unlaceVorbis(b []byte) (identification, setup []byte, err error) {
	if len(b) == 0 || b[0] != 2 {
		return nil, nil, broken("The headers of the Vorbis track are damaged.")
	}
	at := 1
	var sizes [2]int
	for i := range sizes {
		for more := true; more; at++ {
			if at >= len(b) {
				return nil, nil, broken("The headers of the Vorbis track are cut off.")
			}
			sizes[i] += int(b[at])
			more = b[at] == 255
		}
	}
	rest := b[at:]
	if sizes[0]+sizes[1] > len(rest) {
		return nil, nil, broken("The headers of the Vorbis track are cut off.")
	}
	return rest[:sizes[0]], rest[sizes[0]+sizes[1]:], nil
}

// maxVorbisInside is how many channels are decoded in this process: as many as the format has layouts for. The memory of a decoder grows with them.
const maxVorbisInside = 8

func vorbisInside(st stream) bool { return st.channels <= maxVorbisInside }

// vorbisDecoder decodes packets. Where Ogg chains streams, it takes their headers among the packets: an identification header starts over, a setup
// header brings other codebooks. (Audio packets are even, headers are odd.)
type vorbisDecoder struct {
	channels       int
	decoder        *vorbis.Decoder
	identification []byte
}

func newVorbisDecoder(st stream) (decoder, error) {
	identification, setup, err := unlaceVorbis(st.setup)
	if err != nil {
		return nil, err
	}
	d := &vorbisDecoder{channels: st.channels, identification: identification}
	return d, d.start(setup)
}

func (d *vorbisDecoder) start(setup []byte) (err error) {
	if d.decoder, err = vorbis.NewDecoder(d.identification, setup); err != nil {
		return vorbisError(err, "The headers of the Vorbis stream are damaged.")
	}
	return nil
}

// decode implements decoder.
func (d *vorbisDecoder) decode(dst []float32, data []byte) ([]float32, error) {
	switch {
	case len(data) == 0:
		return dst, nil
	case vorbis.IsHeader(data, 1):
		d.identification = append([]byte(nil), data...)
		d.decoder.Reset()
		return dst, nil
	case vorbis.IsHeader(data, 5):
		return dst, d.start(data)
	}
	at := len(dst)
	dst, err := d.decoder.Decode(dst, data)
	if err != nil {
		return dst, vorbisError(err, "A Vorbis packet is damaged.")
	}
	if order, ok := vorbisOrders[d.channels]; ok {
		reorder(dst[at:], order)
	}
	return dst, nil
}

// vorbisOrders are where the channels of WAV (front left and right, center, low frequencies, back, side) stand in Vorbis (Vorbis I, section 4.3.9), by
// their number, where it matters.
var vorbisOrders = map[int][]int{
	3: {0, 2, 1},
	5: {0, 2, 1, 3, 4},
	6: {0, 2, 1, 5, 3, 4},
	7: {0, 2, 1, 6, 5, 3, 4},
	8: {0, 2, 1, 7, 5, 6, 3, 4},
}

// reorder takes the channels of each frame in another order.
func reorder(interleaved []float32, order []int) {
	var frame [maxVorbisInside]float32
	for ; len(interleaved) > 0; interleaved = interleaved[len(order):] {
		copy(frame[:], interleaved[:len(order)])
		for i, from := range order {
			interleaved[i] = frame[from]
		}
	}
}
