package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-audio/audio"
	"github.com/go-audio/wav"
)

// wavData reads the integer samples of a WAV: frames of channels x bytes, up to 4 of these. Others are pcmReader's.
//
// They are decoded by github.com/go-audio/wav. It is handed a WAV of our own making: a plain header of 44 bytes in front of the
// samples, always little-endian, so that nothing of the upload's header reaches it. Since its sizes have 32 bits, longer data is handed over in
// windows, each as a WAV of its own.
type wavData struct {
	samples     io.Reader // little-endian
	format      *wavFormat
	left        int64 // bytes that have not been handed to a window yet
	window      *wav.Decoder
	windowBytes int64 // the most that a window holds
	ints        audio.IntBuffer
	block       int // the most samples that are decoded at once: whole frames
}

// wavBlockSamples is how many samples of all channels are decoded at once; at least one frame.
const wavBlockSamples = 8192

func newWAVData(s *source, at, n int64, f *wavFormat) *wavData {
	block := max(wavBlockSamples/f.channels, 1) * f.channels
	d := &wavData{format: f, left: n, windowBytes: maxWindowBytes, block: block}
	swap := 1
	if f.pcm.bigEndian {
		swap = f.pcm.bytes
	}
	d.samples = &fullReader{r: s.section(at, n), swap: swap}
	d.ints.Data = make([]int, block)
	return d
}

// fullReader fills each buffer but the last, and reverses the bytes of every swap of them. Buffers hold whole samples.
type fullReader struct {
	r    io.Reader
	swap int
}

func (r *fullReader) Read(p []byte) (int, error) {
	n, err := io.ReadFull(r.r, p)
	if errors.Is(err, io.ErrUnexpectedEOF) { // the last buffer is not full
		err = nil
	}
	if r.swap > 1 {
		for i := 0; i+r.swap <= n; i += r.swap {
			for a, b := i, i+r.swap-1; a < b; a, b = a+1, b-1 {
				p[a], p[b] = p[b], p[a]
			}
		}
	}
	return n, err
}

// maxWindowBytes is what one WAV of our making holds.
const maxWindowBytes = 1 << 30

// read is track.read.
func (d *wavData) read(dst []float32) (int, error) {
	values := dst[:min(len(dst)/d.format.channels*d.format.channels, d.block)]
	for {
		if d.window == nil && !d.nextWindow() {
			return 0, io.EOF
		}
		d.ints.Data = d.ints.Data[:len(values)]
		n, err := d.window.PCMBuffer(&d.ints)
		if err != nil {
			return 0, fmt.Errorf("decode PCM: %w", err)
		}
		if n == 0 {
			d.window = nil
			continue
		}
		zero, scale := 0.0, 1/math.Ldexp(1, 8*d.format.pcm.bytes-1)
		if d.format.pcm.kind == pcmUnsigned {
			zero = 128
		}
		for i, v := range d.ints.Data[:n] {
			values[i] = float32((float64(v) - zero) * scale)
		}
		return n / d.format.channels, nil
	}
}

// nextWindow opens a WAV on the next bytes, if there are any.
func (d *wavData) nextWindow() bool {
	frame := int64(d.format.frameBytes)
	n := min(d.left, d.windowBytes/frame*frame)
	if n == 0 {
		return false
	}
	d.left -= n
	header := plainHeader(d.format, uint32(n))
	d.window = wav.NewDecoder(unseekable{io.MultiReader(bytes.NewReader(header), io.LimitReader(d.samples, n))})
	return true
}

// unseekable is a reader for go-audio/wav, which wants to seek only where other chunks stand before fmt.
type unseekable struct{ io.Reader }

func (unseekable) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }

// plainHeader is the header of a PCM WAV with n bytes of samples.
func plainHeader(f *wavFormat, n uint32) []byte {
	h := make([]byte, 0, 44)
	h = append(h, "RIFF"...)
	h = binary.LittleEndian.AppendUint32(h, n+36)
	h = append(h, "WAVEfmt "...)
	h = binary.LittleEndian.AppendUint32(h, fmtBytes)
	h = binary.LittleEndian.AppendUint16(h, tagPCM)
	h = binary.LittleEndian.AppendUint16(h, uint16(f.channels))
	h = binary.LittleEndian.AppendUint32(h, uint32(f.rate))
	h = binary.LittleEndian.AppendUint32(h, uint32(f.rate*f.frameBytes))
	h = binary.LittleEndian.AppendUint16(h, uint16(f.frameBytes))
	h = binary.LittleEndian.AppendUint16(h, uint16(8*f.pcm.bytes))
	h = append(h, "data"...)
	return binary.LittleEndian.AppendUint32(h, n)
}
