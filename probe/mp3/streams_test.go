package mp3

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Streams of random numbers: each field of the side information takes any value that is allowed, and the data is noise, which means something
// in codes that are complete. Encoders do not use half of what the format has; other decoders do agree about it.
//
// The streams are the same each time. What ffmpeg decodes of them is in testdata (tools/probe-golden).
var randomStreams = map[string]Header{
	"mpeg1_stereo":    {Version: MPEG1, Rate: 44100, Bitrate: 192000, Mode: Stereo},
	"mpeg1_midside":   {Version: MPEG1, Rate: 48000, Bitrate: 256000, Mode: JointStereo, Extension: 2},
	"mpeg1_intensity": {Version: MPEG1, Rate: 32000, Bitrate: 160000, Mode: JointStereo, Extension: 1},
	"mpeg1_both":      {Version: MPEG1, Rate: 44100, Bitrate: 224000, Mode: JointStereo, Extension: 3},
	"mpeg1_mono":      {Version: MPEG1, Rate: 48000, Bitrate: 96000, Mode: Mono},
	"mpeg1_dual_crc":  {Version: MPEG1, Rate: 32000, Bitrate: 128000, Mode: DualChannel, Protected: true},
	"mpeg2_stereo":    {Version: MPEG2, Rate: 22050, Bitrate: 80000, Mode: Stereo},
	"mpeg2_both":      {Version: MPEG2, Rate: 16000, Bitrate: 64000, Mode: JointStereo, Extension: 3},
	"mpeg2_mono":      {Version: MPEG2, Rate: 16000, Bitrate: 48000, Mode: Mono},
	"mpeg25_midside":  {Version: MPEG25, Rate: 11025, Bitrate: 56000, Mode: JointStereo, Extension: 2},
	"mpeg25_both":     {Version: MPEG25, Rate: 12000, Bitrate: 64000, Mode: JointStereo, Extension: 3},
	"mpeg25_8k":       {Version: MPEG25, Rate: 8000, Bitrate: 32000, Mode: Mono},
}

const randomFrames = 12

var writeStreams = flag.String("streams", "", "a folder to write the random streams to, for tools/probe-golden")

func TestWriteStreams(t *testing.T) {
	if *writeStreams == "" {
		t.Skip("nothing to write: -streams is not given")
	}
	for name, h := range randomStreams {
		h.Layer = 3
		if err := os.WriteFile(filepath.Join(*writeStreams, name+".mp3"), randomStream(h), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// noise is a generator of random numbers (xorshift64*).
type noise uint64

func (x *noise) below(n int) int {
	*x ^= *x >> 12
	*x ^= *x << 25
	*x ^= *x >> 27
	return int(uint64(*x) * 0x2545F4914F6CDD1D >> 33 % uint64(n))
}

// bitWriter writes bits, most significant first.
type bitWriter struct {
	b  []byte
	at int
}

func (w *bitWriter) put(v, n int) {
	for n--; n >= 0; n-- {
		if w.at%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[w.at/8] |= byte(v>>n&1) << (7 - w.at%8)
		w.at++
	}
}

// bytes are the header's.
func (h Header) bytes() []byte {
	w := &bitWriter{}
	w.put(0x7FF, 11)
	w.put([]int{MPEG1: 3, MPEG2: 2, MPEG25: 0}[h.Version], 2)
	w.put(4-h.Layer, 2)
	w.put(map[bool]int{false: 1, true: 0}[h.Protected], 1)
	for i, k := range bitratesK[min(h.Version, 1)][h.Layer-1] {
		if 1000*k == h.Bitrate {
			w.put(i, 4)
		}
	}
	w.put(h.rateIndex()%3, 2)
	w.put(map[bool]int{true: 1}[h.Padded], 1)
	w.put(0, 1)
	w.put(int(h.Mode), 2)
	w.put(int(h.Extension), 2)
	w.put(0, 4)
	return w.b
}

// randomStream makes a stream of frames with this header.
func randomStream(h Header) []byte {
	x := noise(88172645463325252 + h.Rate + h.Bitrate)
	most, granules := 511, h.Samples()/granuleLines
	if h.Version != MPEG1 {
		most = 255
	}
	own := h.Bytes() - h.sideAt() - h.sideBytes() // bytes of data in a frame
	var stream, data []byte
	begin, last := 0, blocks{}
	decoder := NewDecoder()
	for range randomFrames {
		// The frame uses most of what there is, so that the rest can be reached from the next.
		rest := x.below(min(most, own) / 2)
		for {
			try := *decoder
			b := last
			side := randomSide(h, &x, &b, begin, 8*(begin+own-rest)/(granules*h.Channels()))
			data = data[:0]
			for range own {
				data = append(data, byte(x.below(256)))
			}
			frame := append(h.bytes(), make([]byte, h.sideAt()-HeaderBytes)...)
			frame = append(append(frame, side...), data...)
			_, err := try.Decode(nil, frame)
			if f := try.channel[1].factors; h.Version != MPEG1 && h.intensity() && (slices.Contains(f.illegal[:], true) || slices.Max(f.values[:]) >= 16) {
				continue // against the standard, ffmpeg draws the line between positions and what is none at 16
			}
			if err == nil {
				*decoder, last = try, b
				stream = append(stream, frame...)
				begin = rest
				break
			}
		}
	}
	return stream
}

// blocks are the kinds of blocks of a granule. They are the same in both channels, and follow each other as they must: ffmpeg takes
// advantage of that.
type blocks struct{ kind, mixed int }

func (b *blocks) next(x *noise, h Header) {
	switch b.kind {
	case normalBlock, stopBlock:
		b.kind = []int{normalBlock, startBlock}[x.below(2)]
		b.mixed = x.below(2)
		if h.rateIndex() == rate8000 {
			b.mixed = 0
		}
	case startBlock:
		b.kind = shortBlock
	case shortBlock:
		b.kind = []int{shortBlock, stopBlock}[x.below(2)]
	}
}

// randomSide makes side information for granules of so many bits each.
func randomSide(h Header, x *noise, b *blocks, begin, bits int) []byte {
	w := &bitWriter{}
	channels := h.Channels()
	if h.Version == MPEG1 {
		w.put(begin, 9)
		w.put(0, 7-2*channels)
		w.put(x.below(1<<(4*channels)), 4*channels)
	} else {
		w.put(begin, 8)
		w.put(0, channels)
	}
	for i := range h.Samples() / granuleLines * channels {
		if i%channels == 0 {
			b.next(x, h)
		}
		n := min(bits, 4095)
		if h.intensity() && i%channels == 1 {
			n /= 4 // so that there is something for it to do
		}
		w.put(n, 12)
		w.put(min(x.below(max(n/12, 2)), granuleLines/2), 9)
		var tables [3]int
		extra := 0 // bits of the largest values
		for i := range tables {
			for tables[i] = x.below(32); tables[i] == 4 || tables[i] == 14; {
				tables[i] = x.below(32)
			}
			extra = max(extra, int(extraBits[tables[i]]))
		}
		w.put(200-extra*16/3-x.below(12), 8) // full scale: ffmpeg gives 0 for what is far beyond
		if h.Version == MPEG1 {
			w.put(x.below(16), 4)
		} else {
			w.put(x.below(512), 9)
		}
		if b.kind != normalBlock {
			w.put(1, 1)
			w.put(b.kind, 2)
			w.put(b.mixed, 1)
			w.put(tables[0]<<5|tables[1], 10)
			w.put(x.below(512), 9)
		} else {
			w.put(0, 1)
			w.put(tables[0]<<10|tables[1]<<5|tables[2], 15)
			w.put(x.below(128), 7)
		}
		if h.Version == MPEG1 {
			w.put(x.below(2), 1)
		}
		w.put(x.below(4), 2)
	}
	return w.b
}
