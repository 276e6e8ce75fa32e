package probe

import (
	"bytes"
	"math"
	"math/bits"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// rate80 is a whole number as AIFF has rates.
func rate80(v uint64) []byte {
	n := bits.Len64(v)
	return put(be, uint16(16383+n-1), v<<(64-n))
}

// aiffComm is a COMM chunk; without a codec, of AIFF.
func aiffComm(channels, frames, width int, rate []byte, codec string) []byte {
	body := put(be, uint16(channels), uint32(frames), uint16(width), rate, codec)
	if codec != "" {
		body = append(body, 0, 0) // an empty name
	}
	return chunk(be, "COMM", body)
}

func ssnd(data []byte) []byte { return chunk(be, "SSND", put(be, uint32(0), uint32(0), data)) }

// aiff puts chunks into a file.
func aiff(kind string, chunks ...[]byte) []byte {
	body := bytes.Join(chunks, nil)
	return put(be, "FORM", uint32(len(body)+4), kind, body)
}

func TestAIFFFiles(t *testing.T) {
	t.Parallel()
	const s = time.Second
	rate, second := rate80(16000), make([]byte, 32000)
	comm, data := aiffComm(1, 16000, 16, rate, ""), ssnd(second)
	// sized is an SSND chunk that claims a size.
	sized := func(size uint32) []byte { return put(be, "SSND", size, uint64(0), second) }
	codec := func(name string, width, frames, bytes int) []byte {
		return aiff("AIFC", chunk(be, "FVER", []byte{0xA2, 0x80, 0x51, 0x40}), aiffComm(2, frames, width, rate, name), ssnd(make([]byte, bytes)))
	}
	const brokenCode, unsupportedCode = aviary.CodeAudioBroken, aviary.CodeMediaTypeUnsupported
	checkFiles(t, []fileCase{
		{"plain", aiff("AIFF", comm, data), s, "", ""},
		{"data first, odd chunks around", aiff("AIFF", chunk(be, "NAME", []byte("abc")), data, chunk(be, "ANNO", []byte("x")), comm, chunk(be, "MARK", nil)), s, "", ""},
		{"an offset before the samples", aiff("AIFF", comm, chunk(be, "SSND", put(be, uint32(512), uint32(0), make([]byte, 512), second))), s, "", ""},
		{"20 bits", aiff("AIFF", aiffComm(1, 16000, 20, rate, ""), ssnd(make([]byte, 48000))), s, "", ""},
		{"an old Macintosh", aiff("AIFF", aiffComm(1, 22254, 8, []byte{0x40, 0x0D, 0xAD, 0xDD, 0x17, 0x45, 0xD1, 0x74, 0x5D, 0x17}, ""), ssnd(make([]byte, 22254))), s, "", ""},
		{"a rate that is not normalized", aiff("AIFF", aiffComm(1, 16000, 16, put(be, uint16(16383+63), uint64(16000)), ""), data), s, "", ""},
		{"from ffmpeg's pipe", aiff("AIFF", aiffComm(1, 0, 16, rate, ""), sized(0)), s, "", ""},
		{"from SoX's pipe", aiff("AIFF", aiffComm(1, 0x3F800000, 16, rate, ""), sized(0x7F000008)), s, "", ""},
		{"no number of frames", aiff("AIFF", aiffComm(1, 0, 16, rate, ""), data), s, "", ""},
		{"junk behind", append(aiff("AIFF", comm, data), make([]byte, 100)...), s, "", ""},
		{"a rest of a frame", aiff("AIFF", comm, ssnd(make([]byte, 32001))), s, "", ""},
		{"NONE", codec("NONE", 24, 16000, 96000), s, "", ""},
		{"in24", codec("in24", 24, 16000, 96000), s, "", ""},
		{"in32", codec("in32", 16, 16000, 128000), s, "", ""},
		{"raw", codec("raw ", 8, 16000, 32000), s, "", ""},
		{"sowt", codec("sowt", 16, 16000, 64000), s, "", ""},
		{"FL32", codec("FL32", 32, 16000, 128000), s, "", ""},
		{"FL64", codec("FL64", 64, 16000, 256000), s, "", ""},
		{"ULAW, said to have 16 bits", codec("ULAW", 16, 16000, 32000), s, "", ""},
		{"ALAW", codec("ALAW", 8, 16000, 32000), s, "", ""},
		{"ima4, in blocks", codec("ima4", 0, 250, 17000), s, "", ""},
		{"ima4, in samples", codec("ima4", 4, 16000, 17000), s, "", ""},

		{"ima4 that claims more", codec("ima4", 0, 500, 17000), 0, brokenCode, "claims 2.000 s"},
		{"ima4 with many channels", aiff("AIFC", aiffComm(9, 250, 0, rate, "ima4"), data), 0, brokenCode, "too many"},
		{"MACE", codec("MAC3", 8, 16000, 32000), 0, unsupportedCode, "MACE 3:1"},
		{"an unknown codec", codec("ab\x00c", 8, 16000, 32000), 0, unsupportedCode, `"ab\x00c"`},
		{"claims 2 s", aiff("AIFF", aiffComm(1, 32000, 16, rate, ""), data), 0, brokenCode, "claims 2.000 s"},
		{"claims 0.5 s", aiff("AIFF", aiffComm(1, 8000, 16, rate, ""), data), 0, brokenCode, "claims 0.500 s"},
		{"claims 2^32-1 frames", aiff("AIFF", aiffComm(1, -1, 16, rate, ""), data), 0, brokenCode, "claims"},
		{"the data claims 2 s", aiff("AIFF", comm, sized(64008)), 0, brokenCode, "claims 2.000 s"},
		{"the data is said to be short", aiff("AIFF", comm, put(be, "SSND", uint32(16008), uint64(0), second)), 0, brokenCode, "claims 0.500 s of audio, but the file holds 1.000 s"},
		{"half", aiff("AIFF", comm, data)[:16054], 0, brokenCode, "cut off"},
		{"audio hidden behind", append(aiff("AIFF", comm, data), second...), 0, brokenCode, "claims 1.000 s"},
		{"two COMM", aiff("AIFF", comm, comm, data), 0, brokenCode, "two COMM"},
		{"two SSND", aiff("AIFF", comm, data, data), 0, brokenCode, "two"},
		{"two files", append(aiff("AIFF", comm, data), aiff("AIFF", comm, data)...), 0, brokenCode, "Another AIFF"},
		{"no COMM", aiff("AIFF", data), 0, brokenCode, "no COMM"},
		{"no SSND", aiff("AIFF", comm), 0, brokenCode, "no data"},
		{"COMM of 17 bytes", aiff("AIFF", chunk(be, "COMM", make([]byte, 17)), data), 0, brokenCode, "17 bytes"},
		{"COMM of AIFF in AIFF-C", aiff("AIFC", comm, data), 0, brokenCode, "18 bytes instead of 22"},
		{"a chunk of 4 GB", aiff("AIFF", put(be, "ANNO", uint32(math.MaxUint32)), comm, data), 0, brokenCode, "more than the file has"},
		{"an offset behind the end", aiff("AIFF", comm, chunk(be, "SSND", put(be, uint32(math.MaxUint32), uint32(0), second))), 0, brokenCode, "start"},
		{"SSND of 4 bytes at the end", aiff("AIFF", comm, put(be, "SSND", uint32(4), uint32(0))), 0, brokenCode, "start of its data"},
		{"empty SSND", aiff("AIFF", aiffComm(1, 0, 16, rate, ""), ssnd(nil)), 0, brokenCode, "no audio"},
		{"0 channels", aiff("AIFF", aiffComm(0, 16000, 16, rate, ""), data), 0, brokenCode, "0 channels"},
		{"-1 channels", aiff("AIFF", aiffComm(-1, 16000, 16, rate, ""), data), 0, brokenCode, "-1 channels"},
		{"0 bits", aiff("AIFF", aiffComm(1, 16000, 0, rate, ""), data), 0, brokenCode, "0 bits"},
		{"33 bits", aiff("AIFF", aiffComm(1, 16000, 33, rate, ""), data), 0, brokenCode, "33 bits"},
		{"-16 bits", aiff("AIFF", aiffComm(1, 16000, -16, rate, ""), data), 0, brokenCode, "-16 bits"},
	})
}

func TestExtendedRates(t *testing.T) {
	t.Parallel()
	for _, v := range []uint64{1, 2, 8000, 11025, 16000, 44100, 192000, 384000, 1<<32 - 1} {
		if got, ok := extended(rate80(v)); got != int64(v) || !ok {
			t.Errorf("%d is read as %d, %v", v, got, ok)
		}
	}
	for _, c := range []struct {
		exponent uint16
		fraction uint64
		want     int64
		ok       bool
	}{
		{0, 0, 0, true}, {0, 1 << 63, 0, true}, {0, math.MaxUint64, 0, true}, // 0 and smaller than all
		{16382, math.MaxUint64, 0, true}, {16383, 1 << 63, 1, true}, {16383, math.MaxUint64, 1, true}, // just below and above 1
		{16383 + 14, 0xADDD1745D1745D17, 22254, true},
		{16383 + 62, math.MaxUint64, math.MaxInt64, true}, {16383 + 63, math.MaxUint64, math.MaxInt64, true}, // around 2^63
		{16383 + 99, 1 << 63, math.MaxInt64, true}, {0x7FFE, 1 << 63, math.MaxInt64, true},
		{0x7FFF, 1 << 63, 0, false}, {0x7FFF, 3 << 62, 0, false}, // infinite, no number
		{0x8000 | 16383 + 13, 0xFA << 56, 0, false}, {0x8000, 0, 0, false}, {0xFFFF, 1 << 63, 0, false}, // negative
	} {
		if got, ok := extended(put(be, c.exponent, c.fraction)); got != c.want || ok != c.ok {
			t.Errorf("%04x %016x is read as %d, %v; want %d, %v", c.exponent, c.fraction, got, ok, c.want, c.ok)
		}
	}
}

// A file of more than the limit is too long, whatever its header says.
func TestAIFFGuard(t *testing.T) {
	t.Parallel()
	for _, claim := range []uint32{0, 16000, 16000 * 7200, 0x3F800000} {
		head := aiff("AIFF", aiffComm(1, int(claim), 16, rate80(16000), ""), put(be, "SSND", uint32(0x7F000008), uint64(0)))
		file := tiled{head: head, tile: []byte{0, 1}, size: int64(len(head)) + 2*16000*7200}
		audio, err := New(Config{MaxDuration: time.Hour}).Probe(t.Context(), file, file.size)
		if err != nil || audio.Duration != 2*time.Hour {
			t.Errorf("claims %d frames: %v, %v", claim, audio.Duration, err)
		}
		if _, err := New(Config{}).Decode(t.Context(), file, file.size, time.Hour); aviary.CodeOf(err) != aviary.CodeAudioTooLong {
			t.Errorf("claims %d frames: Decode: %v", claim, err)
		}
	}
}

func FuzzAIFF(f *testing.F) {
	seeds(f, "aiff_", "aifc_")
	addGolden(f, "adpcm_ima_qt.aifc", "pcm_s16be.aiff", "pcm_f32be.aifc")
	rate := rate80(8000)
	f.Add(aiff("AIFF", chunk(be, "NAME", []byte("abc")), ssnd(make([]byte, 1600)), aiffComm(1, 800, 16, rate, "")))
	f.Add(aiff("AIFC", aiffComm(2, 10, 4, rate, "ima4"), ssnd(make([]byte, 680))))
	f.Add(aiff("AIFF", aiffComm(1, 0, 16, rate, ""), put(be, "SSND", uint32(0), uint64(0), make([]byte, 1600))))
	f.Fuzz(func(t *testing.T, file []byte) {
		if file = bytes.Clone(file); len(file) >= 12 && !sniffAIFF(file) { // spend no time on other containers
			copy(file, "FORM")
			copy(file[8:], "AIFF")
		}
		examine(t, file)
	})
}
