package flac

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	mewkiz "github.com/mewkiz/flac"
)

// open splits a file into STREAMINFO and frames.
func open(t testing.TB, file []byte) (StreamInfo, []byte) {
	t.Helper()
	info, err := ParseStreamInfo([StreamInfoBytes]byte(file[8:]))
	if err != nil {
		t.Fatal(err)
	}
	for at := 4; ; {
		last := file[at]&0x80 != 0
		at += 4 + int(file[at+1])<<16 + int(file[at+2])<<8 + int(file[at+3])
		if last {
			return info, file[at:]
		}
	}
}

func golden(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "*.flac"))
	if err != nil || len(names) < 16 {
		t.Fatalf("%d golden files, %v", len(names), err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = b
	}
	return files
}

// decode reads all frames and gives the samples by channel.
func decode(d *Decoder, channels int) ([][]int64, error) {
	all := make([][]int64, channels)
	for {
		if _, err := d.Next(); err != nil {
			return all, err
		}
		for c := range all {
			all[c] = append(all[c], d.Samples(c)...)
		}
	}
}

// sum is the MD5 of samples as STREAMINFO has it: interleaved, little-endian, in whole bytes (RFC 9639, section 8.2).
func sum(samples [][]int64, width int) [16]byte {
	var b []byte
	for i := range samples[0] {
		for _, x := range samples {
			for shift := 0; shift < width; shift += 8 {
				b = append(b, byte(x[i]>>shift))
			}
		}
	}
	return md5.Sum(b)
}

// Files of the reference encoder, whose header has the checksum of what it was given.
func TestReferenceEncoder(t *testing.T) {
	t.Parallel()
	for name, file := range golden(t) {
		info, frames := open(t, file)
		samples, err := decode(NewDecoder(bytes.NewReader(frames), info), info.Channels)
		if !errors.Is(err, io.EOF) || int64(len(samples[0])) != info.Samples {
			t.Errorf("%s: %d samples and %v, want %d", name, len(samples[0]), err, info.Samples)
			continue
		}
		if sum(samples, info.Bits) != info.MD5 {
			t.Errorf("%s: other samples than the encoder's", name)
		}
		var total int64
		d := NewDecoder(iotest.OneByteReader(bytes.NewReader(frames)), info)
		for n := 0; err == nil || total == 0; total += int64(n) {
			n, err = d.Skip()
		}
		if !errors.Is(err, io.EOF) || total != info.Samples || d.Offset() != int64(len(frames)) {
			t.Errorf("%s: Skip counts %d samples in %d bytes and ends with %v", name, total, d.Offset(), err)
		}
	}
}

// A second reader in Go agrees, sample by sample, where it knows the width.
func TestAgainstMewkiz(t *testing.T) {
	t.Parallel()
	for name, file := range golden(t) {
		if strings.HasPrefix(name, "s32") || name == "s24_rice2.flac" || name == "s24_partitions.flac" {
			continue // not known to it, or logged by it
		}
		info, frames := open(t, file)
		got, _ := decode(NewDecoder(bytes.NewReader(frames), info), info.Channels)
		stream, err := mewkiz.New(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for {
			frame, err := stream.ParseNext()
			if err != nil {
				break
			}
			for c, sub := range frame.Subframes {
				for i, v := range sub.Samples {
					if got[c][at+i] != int64(v) {
						t.Fatalf("%s: sample %d of channel %d is %d, want %d", name, at+i, c, got[c][at+i], v)
					}
				}
			}
			at += int(frame.BlockSize)
		}
		if at != len(got[0]) {
			t.Errorf("%s: %d samples, want %d", name, len(got[0]), at)
		}
	}
}

// Frames with all that the format has come back as they were, at any width.
func TestRandomFrames(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		info := StreamInfo{Rate: 16000, Channels: 1 + r.IntN(8), Bits: 4 + r.IntN(29)}
		if r.IntN(2) == 0 {
			info.Channels = 2
		}
		w := frameWriter{rand: r, info: info}
		var stream []byte
		want := make([][]int64, info.Channels)
		for range 3 {
			b, samples := w.frame(1 + r.IntN(300))
			stream = append(stream, b...)
			for c := range want {
				want[c] = append(want[c], samples[c]...)
			}
		}
		got, err := decode(NewDecoder(bytes.NewReader(stream), info), info.Channels)
		if !errors.Is(err, io.EOF) || !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("seed %d, %+v: %v", seed, info, err)
		}
		if n, err := count(NewDecoder(bytes.NewReader(stream), info)); !errors.Is(err, io.EOF) || n != len(want[0]) {
			t.Errorf("seed %d, %+v: Skip counts %d, %v; want %d", seed, info, n, err, len(want[0]))
		}
	}
}

func count(d *Decoder) (int, error) {
	total := 0
	for {
		n, err := d.Skip()
		if err != nil {
			return total, err
		}
		total += n
	}
}

// Any changed byte of a frame is noticed, by both ways to read it.
func TestDamageIsNoticed(t *testing.T) {
	t.Parallel()
	for name, file := range golden(t) {
		info, frames := open(t, file)
		for i := 0; i < len(frames); i += 1 + i/20 {
			bad := bytes.Clone(frames)
			bad[i] ^= 1 << (i % 8)
			_, err := decode(NewDecoder(bytes.NewReader(bad), info), info.Channels)
			_, skipErr := count(NewDecoder(bytes.NewReader(bad), info))
			if errors.Is(err, io.EOF) || errors.Is(skipErr, io.EOF) {
				t.Errorf("%s: the changed byte %d passes: %v, %v", name, i, err, skipErr)
			}
			if fmt.Sprint(err) != fmt.Sprint(skipErr) {
				t.Errorf("%s, byte %d: Next ends with %v, Skip with %v", name, i, err, skipErr)
			}
		}
	}
}

func TestCutFramesAreNoticed(t *testing.T) {
	t.Parallel()
	info, frames := open(t, golden(t)["s16_noise.flac"])
	_, header, _ := ParseHeader(frames[:MaxHeaderBytes], info)
	for n := 1; n < len(frames); n++ {
		want := ErrDamaged
		if n < header {
			want = ErrNoFrame
		}
		if _, err := count(NewDecoder(bytes.NewReader(frames[:n]), info)); !errors.Is(err, want) {
			t.Errorf("cut after %d bytes: %v, want %v", n, err, want)
		}
	}
}

func TestFailuresOfTheReader(t *testing.T) {
	t.Parallel()
	info, frames := open(t, golden(t)["s16_noise.flac"])
	fire := errors.New("disk on fire")
	for _, n := range []int{0, 1, 5, 100, len(frames)} {
		_, err := count(NewDecoder(io.MultiReader(bytes.NewReader(frames[:n]), iotest.ErrReader(fire)), info))
		if !errors.Is(err, fire) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

func TestReservedCodes(t *testing.T) {
	t.Parallel()
	info := StreamInfo{Rate: 16000, Channels: 1, Bits: 16}
	for name, body := range map[string]func(w *bitWriter){
		"first bit":         func(w *bitWriter) { w.write(1, 1); w.write(0, 7+16) },
		"type 2":            func(w *bitWriter) { w.write(2, 7); w.write(0, 1+16) },
		"type 13":           func(w *bitWriter) { w.write(13, 7); w.write(0, 1+16) },
		"type 16":           func(w *bitWriter) { w.write(16, 7); w.write(0, 1+16) },
		"16 wasted bits":    func(w *bitWriter) { w.write(0, 7); w.write(1, 1); w.unary(15); w.write(0, 16) },
		"1,000 wasted bits": func(w *bitWriter) { w.write(0, 7); w.write(1, 1); w.unary(999); w.write(0, 16) },
		"order above block": func(w *bitWriter) { w.write(12, 7); w.write(0, 1); w.write(0, 56); w.write(0, 56) },
		"LPC above block":   func(w *bitWriter) { w.write(63, 7); w.write(0, 1); w.write(0, 56); w.write(0, 56) },
		"precision 16":      func(w *bitWriter) { w.write(32, 7); w.write(0, 1); w.write(0, 16); w.write(15, 4); w.write(0, 50) },
		"negative shift": func(w *bitWriter) {
			w.write(32, 7)
			w.write(0, 1)
			w.write(0, 16)
			w.write(3, 4)
			w.write(31, 5)
			w.write(0, 50)
		},
		"residual coding 2": func(w *bitWriter) { w.write(8, 7); w.write(0, 1); w.write(2, 2); w.write(0, 50) },
		"uneven partitions": func(w *bitWriter) { w.write(8, 7); w.write(0, 1); w.write(0, 2); w.write(1, 4); w.write(0, 50) },
		"partition of 0":    func(w *bitWriter) { w.write(9, 7); w.write(0, 1+16); w.write(0, 2); w.write(15, 4); w.write(0, 50) },
		"quotient beyond 2^32": func(w *bitWriter) {
			w.write(8, 7)
			w.write(0, 1)
			w.write(0, 6)
			w.write(14, 4)
			w.unary(1 << 19)
			w.write(0, 56)
		},
	} {
		header := []byte{0xFF, 0xF8, 6 << 4, 0, 0, 2} // 3 samples
		w := &bitWriter{b: append(header, byte(slowCRC(header, 8, 0x07)))}
		body(w)
		b := append(bytes.Clone(w.b), byte(slowCRC(w.b, 16, 0x8005)>>8), byte(slowCRC(w.b, 16, 0x8005)))
		if _, err := NewDecoder(bytes.NewReader(b), info).Next(); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	info := StreamInfo{Rate: 11025, Channels: 2, Bits: 14}
	check := func(h ...byte) []byte { return append(h, byte(slowCRC(h, 8, 0x07))) }
	for _, c := range []struct {
		b    []byte
		want Header
		ok   bool
	}{
		{check(0xFF, 0xF8, 0x10, 0x00, 0), Header{Block: 192, Rate: 11025, Channels: 1, Bits: 14}, true},
		{check(0xFF, 0xF9, 0x21, 0x12, 5), Header{Block: 576, Rate: 88200, Channels: 2, Bits: 8, Number: 5}, true},
		{check(0xFF, 0xF8, 0x52, 0x24, 0xC2, 0x80), Header{Block: 4608, Rate: 176400, Channels: 3, Bits: 12, Number: 128}, true},
		{check(0xFF, 0xF8, 0x63, 0x38, 0, 0), Header{Block: 1, Rate: 192000, Channels: 4, Bits: 16}, true},
		{check(0xFF, 0xF8, 0x74, 0x4A, 0, 0xFF, 0xFF), Header{Block: 65536, Rate: 8000, Channels: 5, Bits: 20}, true},
		{check(0xFF, 0xF8, 0x85, 0x5C, 0), Header{Block: 256, Rate: 16000, Channels: 6, Bits: 24}, true},
		{check(0xFF, 0xF8, 0xF6, 0x6E, 0), Header{Block: 32768, Rate: 22050, Channels: 7, Bits: 32}, true},
		{check(0xFF, 0xF8, 0xC7, 0x78, 0), Header{Block: 4096, Rate: 24000, Channels: 8, Bits: 16}, true},
		{check(0xFF, 0xF8, 0xC8, 0x88, 0), Header{Block: 4096, Rate: 32000, Channels: 2, Bits: 16, Stereo: LeftSide}, true},
		{check(0xFF, 0xF8, 0xC9, 0x98, 0), Header{Block: 4096, Rate: 44100, Channels: 2, Bits: 16, Stereo: SideRight}, true},
		{check(0xFF, 0xF8, 0xCA, 0xA8, 0), Header{Block: 4096, Rate: 48000, Channels: 2, Bits: 16, Stereo: MidSide}, true},
		{check(0xFF, 0xF8, 0xCB, 0x08, 0), Header{Block: 4096, Rate: 96000, Channels: 1, Bits: 16}, true},
		{check(0xFF, 0xF8, 0xCC, 0x08, 0, 37), Header{Block: 4096, Rate: 37000, Channels: 1, Bits: 16}, true},
		{check(0xFF, 0xF8, 0xCD, 0x08, 0, 0x2B, 0x11), Header{Block: 4096, Rate: 11025, Channels: 1, Bits: 16}, true},
		{check(0xFF, 0xF8, 0x7E, 0x08, 0, 0x0F, 0xFF, 0x2B, 0x11), Header{Block: 4096, Rate: 110250, Channels: 1, Bits: 16}, true},
		{check(0xFF, 0xF8, 0xC5, 0x08, 0xFE, 0xBF, 0xBF, 0xBF, 0xBF, 0xBF, 0xBF),
			Header{Block: 4096, Rate: 16000, Channels: 1, Bits: 16, Number: 1<<36 - 1}, true},
		{[]byte{}, Header{}, false},
		{[]byte{0xFF, 0xF8, 0xC5, 0x08, 0}, Header{}, false},
		{[]byte{0xFF, 0xF8, 0xC5, 0x08, 0, 0}, Header{}, false},                  // checksum
		{check(0xFF, 0xF8, 0xC5, 0x08, 0)[:5], Header{}, false},                  // cut
		{check(0xFF, 0xFA, 0xC5, 0x08, 0), Header{}, false},                      // reserved
		{check(0xFE, 0xF8, 0xC5, 0x08, 0), Header{}, false},                      // no sync
		{check(0xFF, 0xF8, 0x05, 0x08, 0), Header{}, false},                      // block 0
		{check(0xFF, 0xF8, 0xCF, 0x08, 0), Header{}, false},                      // rate 15
		{check(0xFF, 0xF8, 0xCC, 0x08, 0, 0), Header{}, false},                   // 0 Hz
		{check(0xFF, 0xF8, 0xC5, 0xB8, 0), Header{}, false},                      // channels 11
		{check(0xFF, 0xF8, 0xC5, 0x06, 0), Header{}, false},                      // width 3
		{check(0xFF, 0xF8, 0xC5, 0x09, 0), Header{}, false},                      // reserved bit
		{check(0xFF, 0xF8, 0xC5, 0x08, 0x80), Header{}, false},                   // a number that starts in its middle
		{check(0xFF, 0xF8, 0xC5, 0x08, 0xFF, 0x80), Header{}, false},             // a number of 8 bytes
		{check(0xFF, 0xF8, 0xC5, 0x08, 0xC2, 0x00), Header{}, false},             // a number that breaks off
		{append([]byte{0xFF, 0xF8, 0xC5, 0x08, 0xFE, 0x80}, 0), Header{}, false}, // a number that is cut
	} {
		h, n, ok := ParseHeader(c.b, info)
		if ok != c.ok || ok && (h != c.want || n != len(c.b)) {
			t.Errorf("%x: %+v, %d, %v; want %+v, %v", c.b, h, n, ok, c.want, c.ok)
		}
	}
}

func TestStreamInfo(t *testing.T) {
	t.Parallel()
	info, _ := open(t, golden(t)["s24_rice2.flac"])
	if info.Rate != 24000 || info.Channels != 2 || info.Bits != 24 || info.Samples != 1000 || info.MinBlock != info.MaxBlock || info.MD5 == [16]byte{} {
		t.Errorf("%+v", info)
	}
	if _, err := ParseStreamInfo([StreamInfoBytes]byte{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("rate 0: %v", err)
	}
	if _, err := ParseStreamInfo([StreamInfoBytes]byte{12: 0x10}); !errors.Is(err, ErrDamaged) {
		t.Errorf("1 bit: %v", err)
	}
}

func TestChecksums(t *testing.T) {
	t.Parallel()
	check := []byte("123456789") // the usual test of checksums; both are in the CRC RevEng list as CRC-8/SMBUS and CRC-16/UMTS
	if crc8(check) != 0xF4 || crc16(0, check) != 0xFEE8 {
		t.Errorf("crc8 %02x, crc16 %04x", crc8(check), crc16(0, check))
	}
	long := bytes.Repeat(check, 9)
	for i := range long {
		if got := crc16(crc16(0, long[:i]), long[i:]); got != uint16(slowCRC(long, 16, 0x8005)) {
			t.Errorf("in two parts at %d: %04x", i, got)
		}
	}
}

// The promise of the package: a window and, for Next, a frame.
func TestMemory(t *testing.T) {
	info := StreamInfo{Rate: 8000, Channels: 1, Bits: 16}
	header := []byte{0xFF, 0xF8, 7 << 4, 0, 0, 0xFF, 0xFE}
	frame := append(bytes.Clone(header), byte(slowCRC(header, 8, 0x07)), 0, 1, 2)
	frame = append(frame, byte(slowCRC(frame, 16, 0x8005)>>8), byte(slowCRC(frame, 16, 0x8005)))
	stream := bytes.Repeat(frame, 10000) // 22 h in 130 kB
	for name, most := range map[string]uint64{"Skip": 80 << 10, "Next": 700 << 10} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d, n := NewDecoder(bytes.NewReader(stream), info), 0
		read := d.Skip
		frames := 10000
		if name == "Next" {
			read, frames = d.Next, 100
		}
		for range frames {
			m, err := read()
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; n != frames*65535 || got > most {
			t.Errorf("%s: %d bytes for %d samples, want at most %d", name, got, n, most)
		}
	}
}

// Skip and Next find the same in any bytes, and stop.
func FuzzFrames(f *testing.F) {
	for _, file := range golden(f) {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) < 8+StreamInfoBytes {
			t.Skip()
		}
		info, err := ParseStreamInfo([StreamInfoBytes]byte(file[8:]))
		if err != nil {
			t.Skip()
		}
		frames := file[8+StreamInfoBytes:]
		a, b := NewDecoder(bytes.NewReader(frames), info), NewDecoder(iotest.HalfReader(bytes.NewReader(frames)), info)
		for {
			before := a.Offset()
			n, err := a.Next()
			m, skipErr := b.Skip()
			if n != m || fmt.Sprint(err) != fmt.Sprint(skipErr) || a.Offset() != b.Offset() {
				t.Fatalf("Next gives %d, %v at %d; Skip gives %d, %v at %d", n, err, a.Offset(), m, skipErr, b.Offset())
			}
			if err != nil {
				return
			}
			if n < 1 || n > 65536 || a.Offset() < before+9 || a.Offset() > int64(len(frames)) {
				t.Fatalf("%d samples in bytes %d to %d", n, before, a.Offset())
			}
			for c := range info.Channels {
				if len(a.Samples(c)) != n {
					t.Fatalf("%d samples in channel %d, want %d", len(a.Samples(c)), c, n)
				}
			}
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	w := frameWriter{rand: rand.New(rand.NewPCG(1, 2)), info: StreamInfo{Rate: 16000, Channels: 1, Bits: 16}}
	var stream []byte
	total := 0
	for range 100 {
		frame, samples := w.frame(4096)
		stream = append(stream, frame...)
		total += len(samples[0])
	}
	for name, read := range map[string]func(*Decoder) (int, error){"Next": (*Decoder).Next, "Skip": (*Decoder).Skip} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				d := NewDecoder(bytes.NewReader(stream), w.info)
				for {
					if _, err := read(d); err != nil {
						break
					}
				}
			}
			b.ReportMetric(float64(b.N)*float64(total)/16000/b.Elapsed().Seconds(), "audio_s/s")
		})
	}
}
