package flac

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	mewkiz "github.com/mewkiz/flac"
	mewkizframe "github.com/mewkiz/flac/frame"
	"github.com/mewkiz/flac/meta"
)

// encode gives the file of samples that are written some at a time, with the header that Close completes.
func encode(t testing.TB, rate, bits int, samples []int32, atOnce int) []byte {
	t.Helper()
	var out bytes.Buffer
	e, err := NewEncoder(&out, rate, bits)
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(samples, atOnce) {
		if err := e.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	head, err := e.Close()
	if err != nil {
		t.Fatal(err)
	}
	file := out.Bytes()
	copy(file[StreamInfoOffset:], head[:])
	return file
}

// signals are what an encoder may be given; most is full scale.
func signals(most int32) map[string][]int32 {
	rand := rand.New(rand.NewPCG(3, 4))
	make := func(n int, f func(i int) float64) []int32 {
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(math.Round(min(max(f(i), -1), 1) * float64(most)))
		}
		return x
	}
	tone := func(i int) float64 {
		return 0.4*math.Sin(float64(i)*0.05) + 0.3*math.Sin(float64(i)*0.31) + 0.001*rand.NormFloat64()
	}
	all := map[string][]int32{
		"nothing":      {},
		"one sample":   {-7},
		"two samples":  {most, -most - 1},
		"silence":      make(10000, func(int) float64 { return 0 }),
		"DC":           make(10000, func(int) float64 { return 0.3 }),
		"full scale":   make(5000, func(int) float64 { return -2 }),
		"alternating":  make(9000, func(i int) float64 { return float64(1 - i%2*2) }),
		"noise":        make(9000, func(int) float64 { return rand.Float64()*2 - 1 }),
		"quiet noise":  make(9000, func(int) float64 { return 1e-4 * rand.NormFloat64() }),
		"tone":         make(20000, tone),
		"steps":        make(20000, func(i int) float64 { return float64(i/777%9)/9 - 0.5 }),
		"clicks":       make(20000, func(i int) float64 { return float64(i % 1000 / 999) }),
		"a loud start": make(20000, func(i int) float64 { return tone(i) * math.Exp(-float64(i)/300) }),
		"ramp":         make(20000, func(i int) float64 { return float64(i)/10000 - 1 }),
		"cubic":        make(20000, func(i int) float64 { x := float64(i)/10000 - 1; return x * x * x }),
	}
	all["extremes"] = make(9000, func(i int) float64 { return 1 })
	for i := range all["extremes"] {
		if rand.IntN(2) == 0 {
			all["extremes"][i] = -most - 1
		}
	}
	for name, shift := range map[string]int{"8 low bits are zero": 8, "all but one low bits are zero": 14} {
		x := make(9000, tone)
		for i := range x {
			x[i] = x[i] >> shift << shift
		}
		all[name] = x
	}
	for _, n := range []int{2, 3, 4, 5, 15, 16, 17, 31, 33, 255, 256, 257, EncoderBlock - 1, EncoderBlock, EncoderBlock + 1, 2*EncoderBlock + 48} {
		all["tone of "+strconv.Itoa(n)] = make(n, tone)
	}
	return all
}

// What was encoded comes back from the decoder of this package and from another one, and the completed header says all.
func TestEncoderRoundTrip(t *testing.T) {
	t.Parallel()
	for _, bits := range []int{16, 24} {
		for name, samples := range signals(1<<(bits-1) - 1) {
			file := encode(t, 16000, bits, samples, 1000)
			checkOurs(t, name, file, bits, samples)
			checkMewkiz(t, name, file, samples)
			if most := 60 + len(samples)*bits/8 + 12*(len(samples)/EncoderBlock+1); len(file) > most {
				t.Errorf("%s, %d bits: %d bytes, want at most %d", name, bits, len(file), most)
			}
		}
	}
}

func checkOurs(t *testing.T, name string, file []byte, width int, samples []int32) {
	t.Helper()
	info, frames := open(t, file)
	got, err := decode(NewDecoder(bytes.NewReader(frames), info), 1)
	if !errors.Is(err, io.EOF) || !slices.EqualFunc(got[0], samples, func(a int64, b int32) bool { return a == int64(b) }) {
		t.Fatalf("%s, %d bits: %d samples of %d and %v, or others", name, width, len(got[0]), len(samples), err)
	}
	if info.Samples != int64(len(samples)) || info.MD5 != sum(got, width) || info.MinBlock != EncoderBlock || info.MaxBlock != EncoderBlock {
		t.Errorf("%s, %d bits: %+v", name, width, info)
	}
	least, most, at := 0, 0, int64(0)
	for d := NewDecoder(bytes.NewReader(frames), info); ; at = d.Offset() {
		if _, err := d.Skip(); err != nil {
			break
		}
		n := int(d.Offset() - at)
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	if info.MinFrame != least || info.MaxFrame != most {
		t.Errorf("%s, %d bits: frames of %d to %d bytes, the header says %d to %d", name, width, least, most, info.MinFrame, info.MaxFrame)
	}
}

func checkMewkiz(t *testing.T, name string, file []byte, samples []int32) {
	t.Helper()
	stream, err := mewkiz.New(bytes.NewReader(file))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var got []int32
	for {
		frame, err := stream.ParseNext()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: mewkiz/flac: %v", name, err)
		}
		if want := uint64(len(got) / EncoderBlock); frame.Num != want || !frame.HasFixedBlockSize {
			t.Errorf("%s: frame %d is numbered %d", name, want, frame.Num)
		}
		got = append(got, frame.Subframes[0].Samples...)
	}
	if !slices.Equal(got, samples) {
		t.Fatalf("%s: mewkiz/flac reads other samples", name)
	}
}

// Without the completed header, a file is valid as well: a writer to a pipe cannot go back.
func TestEncoderStart(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e, err := NewEncoder(&out, 16000, 16)
	if err != nil || e.Write(make([]int32, EncoderBlock)) != nil {
		t.Fatal(err)
	}
	info, frames := open(t, out.Bytes())
	if info.Samples != 0 || info.MD5 != [16]byte{} || info.Rate != 16000 || info.Bits != 16 || info.Channels != 1 || info.MinBlock != EncoderBlock {
		t.Errorf("%+v", info)
	}
	if n, err := count(NewDecoder(bytes.NewReader(frames), info)); n != EncoderBlock || !errors.Is(err, io.EOF) {
		t.Errorf("%d samples, %v", n, err)
	}
}

// How the samples are handed over does not show.
func TestEncoderWritesOfAnySize(t *testing.T) {
	t.Parallel()
	samples := signals(32767)["tone"]
	want := encode(t, 16000, 16, samples, len(samples))
	for _, n := range []int{1, 7, EncoderBlock - 1, EncoderBlock, EncoderBlock + 1, 3 * EncoderBlock} {
		if got := encode(t, 16000, 16, samples, n); !bytes.Equal(got, want) {
			t.Errorf("%d at a time: another file", n)
		}
	}
}

func TestEncoderRates(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{1, 7350, 8000, 11025, 12345, 16000, 32000, 33000, 44100, 48000, 65535, 96000, 128000, 192000, 352800, 384000, 655350} {
		checkOurs(t, strconv.Itoa(rate), encode(t, rate, 16, signals(32767)["tone of 33"], 33), 16, signals(32767)["tone of 33"])
	}
	for _, c := range []struct{ rate, bits int }{{0, 16}, {-8000, 16}, {65537, 16}, {655360, 16}, {1 << 20, 16}, {16000, 8}, {16000, 20}, {16000, 32}, {16000, 0}} {
		if _, err := NewEncoder(io.Discard, c.rate, c.bits); err == nil {
			t.Errorf("%d Hz and %d bits are taken", c.rate, c.bits)
		}
	}
}

// failingWriter takes so many bytes.
type failingWriter struct{ left int }

var errDisk = errors.New("disk full")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

func TestEncoderFailures(t *testing.T) {
	t.Parallel()
	if _, err := NewEncoder(&failingWriter{10}, 16000, 16); !errors.Is(err, errDisk) {
		t.Errorf("the header: %v", err)
	}
	e, err := NewEncoder(&failingWriter{100}, 16000, 16)
	if err != nil {
		t.Fatal(err)
	}
	noise := signals(32767)["noise"]
	for range 2 { // it sticks
		if err := e.Write(noise); !errors.Is(err, errDisk) {
			t.Errorf("a frame: %v", err)
		}
	}
	if _, err := e.Close(); !errors.Is(err, errDisk) {
		t.Errorf("Close: %v", err)
	}
	for _, v := range []int32{32768, -32769, math.MaxInt32, math.MinInt32} {
		e, err := NewEncoder(io.Discard, 16000, 16)
		if err != nil {
			t.Fatal(err)
		}
		_ = e.Write([]int32{1, v})
		if _, err := e.Close(); err == nil {
			t.Errorf("%d is taken as a sample of 16 bits", v)
		}
	}
	e, _ = NewEncoder(io.Discard, 16000, 16)
	e.info.Samples = maxSamples - 1
	if err := e.Write([]int32{1}); err != nil {
		t.Error(err)
	}
	if err := e.Write([]int32{1}); !errors.Is(err, errTooLong) {
		t.Errorf("one sample more than the header can count: %v", err)
	}
	e, _ = NewEncoder(io.Discard, 16000, 16)
	if _, err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Write([]int32{1}); !errors.Is(err, errClosed) {
		t.Errorf("Write after Close: %v", err)
	}
}

// STREAMINFO is written as it was read, from the reference encoder's files.
func TestStreamInfoBytes(t *testing.T) {
	t.Parallel()
	for name, file := range golden(t) {
		info, _ := open(t, file)
		if b := info.Bytes(); !bytes.Equal(b[:], file[StreamInfoOffset:StreamInfoOffset+StreamInfoBytes]) || info.MaxFrame == 0 {
			t.Errorf("%s: %x is written as %x", name, file[StreamInfoOffset:StreamInfoOffset+StreamInfoBytes], b)
		}
	}
}

// A frame number has up to 36 bits; reading them is another function's work.
func TestCodedNumbers(t *testing.T) {
	t.Parallel()
	for shift := range 37 {
		for _, d := range []uint64{0, 1} {
			v := uint64(1)<<shift - d
			if v >= 1<<36 {
				continue
			}
			b := appendCodedNumber(nil, v)
			if got, n, ok := codedNumber(b); got != v || n != len(b) || !ok || !bytes.Equal(b, codeNumber(v)) {
				t.Errorf("%d is written as %x and read as %d", v, b, got)
			}
		}
	}
}

// The promise: a block allocates nothing.
func TestEncoderAllocates(t *testing.T) {
	e, err := NewEncoder(io.Discard, 16000, 16)
	if err != nil {
		t.Fatal(err)
	}
	noise := signals(32767)["noise"]
	if n := testing.AllocsPerRun(10, func() {
		if err := e.Write(noise); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for each Write", n)
	}
}

// Any samples come back.
func FuzzFLACEncoder(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte{1, 2, 3}, true)
	for _, samples := range signals(32767) {
		var b []byte
		for _, v := range samples[:min(len(samples), 500)] {
			b = append(b, byte(v), byte(v>>8), byte(v>>9))
		}
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, wide bool) {
		bits, samples := 16, []int32{}
		if wide {
			bits = 24
		}
		for ; len(b) >= 3; b = b[3:] {
			samples = append(samples, int32(uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16)<<8>>(32-bits))
		}
		samples = slices.Repeat(samples, 1+EncoderBlock/(1+len(samples))) // a whole block
		file := encode(t, 16000, bits, samples, max(len(samples), 1))
		checkOurs(t, "fuzzed", file, bits, samples)
	})
}

// speech is the repository's recordings.
func speech(b *testing.B) (all []int32, rate int) {
	b.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", "models", "digits", "samples", "*16k.flac"))
	if err != nil || len(names) == 0 {
		b.Fatalf("no recordings: %v", err)
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		info, frames := open(b, file)
		samples, _ := decode(NewDecoder(bytes.NewReader(frames), info), info.Channels)
		for _, v := range samples[0] {
			all = append(all, int32(v))
		}
		rate = info.Rate
	}
	return all, rate
}

// BenchmarkEncoder compares the size and the speed with PCM and with another encoder.
func BenchmarkEncoder(b *testing.B) {
	samples, rate := speech(b)
	for name, run := range map[string]func(io.Writer) error{
		"aviary": func(w io.Writer) error {
			e, err := NewEncoder(w, rate, 16)
			if err != nil {
				return err
			}
			if err := e.Write(samples); err != nil {
				return err
			}
			_, err = e.Close()
			return err
		},
		"mewkiz": func(w io.Writer) error { return mewkizEncode(w, rate, samples) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(2 * len(samples)))
			var size countingWriter
			for b.Loop() {
				size = 0
				if err := run(&size); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(len(samples))/float64(rate)/b.Elapsed().Seconds(), "audio_s/s")
			b.ReportMetric(float64(size)/float64(2*len(samples)), "of_PCM")
		})
	}
}

type countingWriter int64

func (w *countingWriter) Write(p []byte) (int, error) {
	*w += countingWriter(len(p))
	return len(p), nil
}

func mewkizEncode(w io.Writer, rate int, samples []int32) error {
	e, err := mewkiz.NewEncoder(w, &meta.StreamInfo{BlockSizeMin: EncoderBlock, BlockSizeMax: EncoderBlock, SampleRate: uint32(rate), NChannels: 1, BitsPerSample: 16})
	if err != nil {
		return err
	}
	for block := range slices.Chunk(samples, EncoderBlock) {
		f := &mewkizframe.Frame{
			Header:    mewkizframe.Header{HasFixedBlockSize: true, BlockSize: uint16(len(block)), SampleRate: uint32(rate), Channels: mewkizframe.ChannelsMono, BitsPerSample: 16},
			Subframes: []*mewkizframe.Subframe{{SubHeader: mewkizframe.SubHeader{Pred: mewkizframe.PredVerbatim}, Samples: block, NSamples: len(block)}},
		}
		if err := e.WriteFrame(f); err != nil {
			return err
		}
	}
	return e.Close()
}
