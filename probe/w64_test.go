package probe

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// w64Chunk is a chunk with its true size, padded; name has four bytes.
func w64Chunk(name string, body []byte) []byte {
	b := put(le, name+w64Tail, uint64(len(body)+24), body)
	return append(b, make([]byte, (8-len(b)%8)%8)...)
}

// w64Sized is a chunk that claims a size.
func w64Sized(name string, size uint64, body []byte) []byte { return put(le, name+w64Tail, size, body) }

func w64(chunks ...[]byte) []byte {
	body := bytes.Join(chunks, nil)
	return put(le, w64RIFF, uint64(len(body)+40), "wave"+w64Tail, body)
}

// w64Fmt is a fmt chunk whose numbers agree.
func w64Fmt(tag, channels, rate, width int, extra ...byte) []byte {
	return w64Chunk("fmt ", fmtChunk(le, tag, channels, rate, width, extra...)[8:])
}

func TestW64Files(t *testing.T) {
	t.Parallel()
	const s = time.Second
	second := make([]byte, 32000)
	format, data := w64Fmt(tagPCM, 1, 16000, 16), w64Chunk("data", second)
	const brokenCode, unsupportedCode = aviary.CodeAudioBroken, aviary.CodeMediaTypeUnsupported
	checkFiles(t, []fileCase{
		{"plain", w64(format, data), s, "", ""},
		{"chunks around", w64(w64Chunk("junk", []byte("x")), format, w64Chunk("fact", put(le, uint64(16000))), data, w64Chunk("levl", []byte("abc"))), s, "", ""},
		{"a chunk with a GUID of its own", w64(append(put(le, "fmt 0123456789ab", uint64(32)), make([]byte, 8)...), format, data), s, "", ""},
		{"24 bits", w64(w64Fmt(tagPCM, 1, 16000, 24), w64Chunk("data", make([]byte, 48000))), s, "", ""},
		{"from ffmpeg's pipe", w64(format, w64Sized("data", math.MaxInt64, second)), s, "", ""},
		{"all ones", w64(format, w64Sized("data", math.MaxUint64, second)), s, "", ""},
		{"a recorder that died", w64(format, w64Sized("data", 24, second)), s, "", ""},
		{"a recorder that died, size 0", w64(format, w64Sized("data", 0, second)), s, "", ""},

		{"claims 2 s", w64(format, w64Sized("data", 64024, second)), 0, brokenCode, "claims 2.000 s"},
		{"claims 0.5 s", w64(format, w64Sized("data", 16024, second)), 0, brokenCode, "claims 0.500 s"},
		{"claims 2^61 bytes", w64(format, w64Sized("data", 1<<61, second)), 0, brokenCode, "cut off"},
		{"a size below that of the head", w64(format, w64Sized("data", 23, second)), 0, brokenCode, "no data"},
		{"a negative size", w64(format, w64Sized("data", 1<<63, second)), 0, brokenCode, "no data"},
		{"half", w64(format, data)[:16100], 0, brokenCode, "cut off"},
		{"cut in the first chunk", w64(format, data)[:39], 0, brokenCode, "does not say"},
		{"no fmt", w64(data), 0, brokenCode, "no fmt"},
		{"no data", w64(format), 0, brokenCode, "no data"},
		{"two fmt", w64(format, format, data), 0, brokenCode, "two fmt"},
		{"two data", w64(format, data, data), 0, brokenCode, "two"},
		{"two files", append(w64(format, data), w64(format, data)...), 0, brokenCode, "Another Wave64"},
		{"a chunk of 2^60 bytes", w64(w64Sized("junk", 1<<60, nil), format, data), 0, brokenCode, "more than the file has"},
		{"fmt of 2^34 bytes", w64(w64Sized("fmt ", 1<<34, nil), data), 0, brokenCode, "more than the file has"},
		{"0 channels", w64(w64Fmt(tagPCM, 0, 16000, 16), data), 0, brokenCode, "0 channels"},
		{"an unknown tag", w64(w64Fmt(0x7777, 1, 16000, 16), data), 0, unsupportedCode, "0x7777"},
	})
}

// Sizes of 64 bits mean files that other formats cannot hold.
func TestW64Guard(t *testing.T) {
	t.Parallel()
	const rate, frame = 96000, 6 * 3
	for _, extra := range []int64{0, 1} {
		data := (3600*rate + extra) * frame
		head := w64(w64Fmt(tagPCM, 6, rate, 24), w64Sized("data", uint64(data+24), nil))
		file := tiled{head: head, tile: []byte{0, 0, 0}, size: int64(len(head)) + data}
		audio, err := New(Config{MaxDuration: time.Hour}).Probe(t.Context(), file, file.size)
		if want := durationOf(3600*rate+extra, rate); err != nil || audio.Duration != want {
			t.Errorf("%+v, %v; want %v", audio, err, want)
		}
	}
}

func FuzzW64(f *testing.F) {
	addGolden(f, "pcm_u8.w64", "adpcm_ms.w64")
	f.Add(w64(w64Chunk("junk", []byte("x")), w64Fmt(tagPCM, 2, 8000, 24), w64Chunk("data", make([]byte, 1600)), w64Chunk("levl", nil)))
	f.Add(w64(w64Fmt(tagFloat, 1, 8000, 32), w64Sized("data", math.MaxUint64, make([]byte, 1600))))
	f.Fuzz(func(t *testing.T, file []byte) {
		file = bytes.Clone(file)
		copy(file, w64RIFF)
		if len(file) > w64HeadBytes {
			copy(file[w64HeadBytes:], "wave"+w64Tail)
		}
		examine(t, file)
	})
}
