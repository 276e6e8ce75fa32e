package probe

import (
	"errors"
	"fmt"

	"github.com/aviary-asr/aviary/probe/mp3"
)

// mp3PacketFrames is how many sample frames a packet of MP3 decodes to: one frame of Layer III, or several whole ones.
func mp3PacketFrames(packet []byte) (int64, error) { return mpegPacketFrames(packet, 3) }

// mpegPacketFrames does the same for any layer of MPEG audio.
func mpegPacketFrames(packet []byte, layer int) (int64, error) {
	frames := int64(0)
	for at := 0; at == 0 || at < len(packet); {
		h, ok := mp3.ParseHeader(packet[at:])
		switch n := h.Bytes(); {
		case !ok || h.Layer != layer:
			return 0, broken("A packet of MPEG audio does not hold a frame of Layer %d.", layer)
		case n == 0:
			return 0, unsupported("The file holds MPEG audio of free format in packets, which is not supported.")
		case n > len(packet)-at:
			return 0, broken("A packet of MPEG audio ends within its frame.")
		default:
			at += n
		}
		frames += int64(h.Samples())
	}
	return frames, nil
}

// mp3Decoder decodes packets of one or several frames of Layer III. Of a damaged frame, silence remains.
type mp3Decoder struct {
	decoder        *mp3.Decoder
	rate, channels int
	good, bad      int64 // frames; those that lacked data at the start are neither
}

func newMP3Decoder(st stream) (decoder, error) {
	return &mp3Decoder{decoder: mp3.NewDecoder(), rate: st.rate, channels: st.channels}, nil
}

// mostBadFrames may be damaged at the start of a stream before there are good ones.
const mostBadFrames = 16

func (d *mp3Decoder) decode(dst []float32, data []byte) ([]float32, error) {
	for len(data) > 0 {
		h, ok := mp3.ParseHeader(data)
		n := h.Bytes()
		if n == 0 {
			n = len(data) // free format
		}
		if !ok || h.Layer != 3 || n > len(data) {
			return dst, broken("A packet of MP3 does not hold whole frames.")
		}
		frame := data[:n]
		data = data[n:]
		if h.Rate != d.rate || h.Channels() != d.channels {
			dst = append(dst, make([]float32, h.Samples()*d.channels)...)
			d.bad++
		} else {
			var err error
			dst, err = d.decoder.Decode(dst, frame)
			switch {
			case err == nil:
				d.good++
			case d.good > 0 || !errors.Is(err, mp3.ErrMissing):
				d.bad++
			}
		}
		if d.bad > d.good+mostBadFrames {
			return dst, broken("%d of the first %d MP3 frames are damaged.", d.bad, d.bad+d.good)
		}
	}
	return dst, nil
}

func (d *mp3Decoder) warnings() []string {
	if d.bad == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d MP3 frames are damaged and were replaced by silence.", d.bad, d.bad+d.good)}
}
