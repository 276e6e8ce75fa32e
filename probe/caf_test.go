package probe

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// cafChunk is a chunk with its true size.
func cafChunk(id string, body ...[]byte) []byte {
	b := bytes.Join(body, nil)
	return put(be, id, int64(len(b)), b)
}

func caf(chunks ...[]byte) []byte {
	return put(be, "caff", uint16(1), uint16(0), bytes.Join(chunks, nil))
}

func cafDesc(rate float64, format string, flags, packetBytes, packetFrames, channels, width uint32) []byte {
	return cafChunk("desc", put(be, rate, format, flags, packetBytes, packetFrames, channels, width))
}

// cafData is a data chunk with no edits.
func cafData(b []byte) []byte { return cafChunk("data", put(be, uint32(0), b)) }

// cafPakt is a table of packets of these sizes.
func cafPakt(valid int64, priming, remainder int32, sizes ...int) []byte {
	b := put(be, int64(len(sizes)), valid, priming, remainder)
	for _, n := range sizes {
		b = append(b, cafNumber(n)...)
	}
	return cafChunk("pakt", b)
}

func cafNumber(n int) []byte {
	b := []byte{byte(n & 0x7F)}
	for n >>= 7; n > 0; n >>= 7 {
		b = append([]byte{byte(n) | 0x80}, b...)
	}
	return b
}

// times is n copies.
func times(n, v int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = v
	}
	return list
}

func TestCAFFiles(t *testing.T) {
	t.Parallel()
	const s, brokenCode, unsupportedCode = time.Second, aviary.CodeAudioBroken, aviary.CodeMediaTypeUnsupported
	second := make([]byte, 32000)
	desc, data := cafDesc(16000, "lpcm", 0, 2, 1, 1, 16), cafData(second)
	sized := func(size int64) []byte { return put(be, "data", size, uint32(0), second) }
	lpcm := func(flags, packetBytes, packetFrames, channels, width uint32) []byte {
		return caf(cafDesc(8000, "lpcm", flags, packetBytes, packetFrames, channels, width), cafData(make([]byte, 8000*packetBytes)))
	}
	checkFiles(t, []fileCase{
		{"plain", caf(desc, data), s, "", ""},
		{"data first, other chunks", caf(data, cafChunk("free", make([]byte, 9)), desc, cafChunk("info")), s, "", ""},
		{"to the end of the file", caf(desc, sized(-1)), s, "", ""},
		{"a recorder that died", caf(desc, sized(0)), s, "", ""},
		{"a recorder that died behind the number of edits", caf(desc, sized(4)), s, "", ""},
		{"floats of 64 bits", lpcm(cafFloat, 16, 1, 2, 64), s, "", ""},
		{"24 bits in 4 bytes", lpcm(cafLittleEndian, 4, 1, 1, 24), s, "", ""},
		{"12 bits", lpcm(0, 2, 1, 1, 12), s, "", ""},
		{"8 bits", lpcm(0, 1, 1, 1, 8), s, "", ""},
		{"mu-law", caf(cafDesc(8000, "ulaw", 0, 2, 1, 2, 8), cafData(make([]byte, 16000))), s, "", ""},
		{"ima4", caf(cafDesc(6400, "ima4", 0, 68, 64, 2, 4), cafData(make([]byte, 6800))), s, "", ""},

		{"claims 2 s", caf(desc, sized(64004)), 0, brokenCode, "claims 2.000 s"},
		{"claims 0.5 s", caf(desc, sized(16004)), 0, brokenCode, "claims 0.500 s"},
		{"claims 2^62 bytes", caf(desc, sized(1<<62)), 0, brokenCode, "cut off"},
		{"size -2", caf(desc, sized(-2)), 0, brokenCode, "no data"},
		{"half", caf(desc, data)[:16068], 0, brokenCode, "cut off"},
		{"cut behind the data's head", caf(desc, data)[:64], 0, brokenCode, "no audio"},
		{"ima4 that claims more", caf(cafDesc(6400, "ima4", 0, 68, 64, 2, 4), put(be, "data", int64(13604), uint32(0), make([]byte, 6800))), 0, brokenCode, "claims 2.000 s"},
		{"no desc", caf(data), 0, brokenCode, "no desc"},
		{"no data", caf(desc), 0, brokenCode, "no data"},
		{"empty data", caf(desc, cafData(nil)), 0, brokenCode, "no audio"},
		{"two desc", caf(desc, desc, data), 0, brokenCode, "two"},
		{"two data", caf(desc, data, data), 0, brokenCode, "two"},
		{"two pakt", caf(desc, cafPakt(0, 0, 0), cafPakt(0, 0, 0), data), 0, brokenCode, "two"},
		{"another file behind", append(caf(desc, data), put(be, "caff", uint64(0), caf(desc, data))...), 0, brokenCode, "Another CAF"},
		{"desc of 31 bytes", caf(cafChunk("desc", make([]byte, 31)), data), 0, brokenCode, "31 bytes"},
		{"a chunk of 2^62 bytes", caf(put(be, "free", int64(1<<62)), desc, data), 0, brokenCode, "more than the file has"},
		{"a chunk of unknown size", caf(put(be, "free", int64(-1)), desc, data), 0, brokenCode, "more than the file has"},
		{"version 2", put(be, "caff", uint16(2), uint16(0), desc, data), 0, unsupportedCode, "version 2"},
		{"rate NaN", caf(cafDesc(math.NaN(), "lpcm", 0, 2, 1, 1, 16), data), 0, brokenCode, "sample rate"},
		{"rate -1", caf(cafDesc(-1, "lpcm", 0, 2, 1, 1, 16), data), 0, brokenCode, "sample rate"},
		{"rate 1e300", caf(cafDesc(1e300, "lpcm", 0, 2, 1, 1, 16), data), 0, brokenCode, "sample rate"},
		{"rate 0", caf(cafDesc(0, "lpcm", 0, 2, 1, 1, 16), data), 0, brokenCode, "0 Hz"},
		{"0 channels", caf(cafDesc(16000, "lpcm", 0, 2, 1, 0, 16), data), 0, brokenCode, "0 channels"},
		{"2^32-1 channels", caf(cafDesc(16000, "lpcm", 0, 2, 1, math.MaxUint32, 16), data), 0, brokenCode, "channels"},
		{"5 bytes", lpcm(0, 5, 1, 1, 40), 0, brokenCode, "packets of 5 bytes"},
		{"0 bytes", caf(cafDesc(8000, "lpcm", 0, 0, 1, 1, 0), data), 0, brokenCode, "0 bits per sample in 0 bytes"},
		{"17 bits in 2 bytes", lpcm(0, 2, 1, 1, 17), 0, brokenCode, "17 bits per sample in 2"},
		{"floats of 16 bits", lpcm(cafFloat, 2, 1, 1, 16), 0, brokenCode, "packets of 2 bytes"},
		{"half a sample for each channel", lpcm(0, 3, 1, 2, 8), 0, brokenCode, "packets of 3 bytes"},
		{"lpcm with two frames in a packet", lpcm(0, 4, 2, 1, 32), 0, brokenCode, "2 frames"},
		{"ima4 in blocks of 33 bytes", caf(cafDesc(8000, "ima4", 0, 33, 64, 1, 4), data), 0, brokenCode, "33 bytes"},
		{"MACE", caf(cafDesc(8000, "MAC3", 0, 2, 6, 1, 8), data), 0, unsupportedCode, "MACE 3:1"},
		{"an unknown codec", caf(cafDesc(8000, "ab\x00c", 0, 2, 6, 1, 8), data), 0, unsupportedCode, `"ab\x00c"`},
	})
}

// opusCAF is as phones record: packets of 20 ms of silence at 24 kHz, of which the codec says how long they last.
func opusCAF(pakt []byte, data []byte) []byte {
	return caf(cafDesc(24000, "opus", 0, 0, 480, 1, 0), pakt, cafData(data))
}

func TestCAFPackets(t *testing.T) {
	t.Parallel()
	const s, brokenCode = time.Second, aviary.CodeAudioBroken
	silent := []byte{0x08, 0xFF, 0xFE} // SILK, narrow band, 20 ms
	fifty := bytes.Repeat(silent, 50)
	long := []byte{0x0B, 0x03, 0xFF, 0xFE, 0xFF, 0xFE, 0xFF, 0xFE} // 60 ms: three equal frames
	files := []fileCase{
		{"Opus", opusCAF(cafPakt(24000, 0, 0, times(50, 3)...), fifty), s, "", ""},
		{"Opus, with priming and remainder", opusCAF(cafPakt(23000, 312, 688, times(50, 3)...), fifty), durationOf(23000, 24000), "", ""},
		{"Opus, the table says nothing of frames", opusCAF(cafPakt(0, 0, 0, times(50, 3)...), fifty), s, "", ""},
		{"Opus, sizes in five bytes", opusCAF(cafChunk("pakt", put(be, int64(1), int64(480), uint64(0), []byte{0x80, 0x80, 0x80, 0x80, 3})), fifty), s / 50, "", ""},
		{"Opus, packets of one size", caf(cafDesc(24000, "opus", 0, 3, 480, 1, 0), cafData(fifty)), s, "", ""},
		{"Opus, numbers of frames in the table", caf(cafDesc(24000, "opus", 0, 3, 0, 1, 0), cafChunk("pakt", put(be, int64(50), int64(24000), uint64(0)), bytes.Repeat(cafNumber(480), 50)), cafData(fifty)), s, "", ""},

		{"no table", opusCAF(nil, fifty), 0, brokenCode, "no pakt"},
		{"claims 2 s", opusCAF(cafPakt(48000, 0, 0, times(50, 3)...), fifty), 0, brokenCode, "claims 2.000 s"},
		{"hides 0.5 s", opusCAF(cafPakt(12000, 0, 12000, times(50, 3)...), fifty), 0, brokenCode, "claims 0.500 s"},
		{"packets are longer than desc says", opusCAF(cafPakt(24000, 0, 0, times(50, 8)...), bytes.Repeat(long, 50)), 0, brokenCode, "a packet of 2880 frames at 48000 Hz"},
		{"priming of 2 s", opusCAF(cafPakt(24000, 48000, 0, times(150, 3)...), bytes.Repeat(fifty, 3)), 0, brokenCode, "leaves out 2.000 s"},
		{"negative priming", opusCAF(cafPakt(24000, -1, 0, times(50, 3)...), fifty), 0, brokenCode, "negative"},
		{"cut in the packets", opusCAF(cafPakt(0, 0, 0, times(51, 3)...), fifty), 0, brokenCode, "within its packets"},
		{"a packet of 2^35 bytes", opusCAF(cafPakt(0, 0, 0, 1<<35-1), fifty), 0, brokenCode, "within its packets"},
		{"a packet of no bytes", opusCAF(cafPakt(0, 0, 0, 3, 0), fifty), 0, brokenCode, "0 bytes"},
		{"a number without an end", opusCAF(cafChunk("pakt", put(be, int64(1), int64(480), uint64(0), []byte{0x80, 0x80, 0x80, 0x80, 0x80, 3})), fifty), 0, brokenCode, "too long"},
		{"the table ends early", opusCAF(cafChunk("pakt", put(be, int64(2), int64(0), uint64(0), []byte{3, 0x83})), fifty), 0, brokenCode, "ends before"},
		{"the table claims more packets than it has bytes", opusCAF(cafChunk("pakt", put(be, int64(1<<62), int64(0), uint64(0), []byte{3})), fifty), 0, brokenCode, "4611686018427387904 packets"},
		{"a negative number of packets", opusCAF(cafChunk("pakt", put(be, int64(-1), int64(0), uint64(0), []byte{3})), fifty), 0, brokenCode, "negative"},
		{"2^62 packets of one size", caf(cafDesc(24000, "opus", 0, 3, 480, 1, 0), cafChunk("pakt", put(be, int64(1<<62), int64(0), uint64(0))), cafData(fifty)), 0, brokenCode, "within its packets"},
		{"pakt of 23 bytes", opusCAF(cafChunk("pakt", make([]byte, 23)), fifty), 0, brokenCode, "23 bytes"},
		{"damaged packets", opusCAF(cafPakt(0, 0, 0, times(50, 3)...), bytes.Repeat([]byte{0x0B, 0x00, 0xFE}, 50)), 0, brokenCode, "Opus"},
		{"AAC without a kuki", caf(cafDesc(16000, "aac ", 0, 0, 1024, 1, 0), cafPakt(0, 0, 0, 3), cafData(fifty)), 0, brokenCode, "does not describe AAC"},
		{"Apple Lossless without a kuki", caf(cafDesc(16000, "alac", 0, 0, 4096, 1, 0), cafPakt(0, 0, 0, 3), cafData(fifty)), 0, brokenCode, "does not describe Apple Lossless"},
		{"a kuki of 100 kB", caf(cafDesc(16000, "alac", 0, 0, 4096, 1, 0), cafChunk("kuki", make([]byte, 100<<10)), cafPakt(0, 0, 0, 3), cafData(fifty)), 0, brokenCode, "102400 bytes"},
		{"Opus with three channels", caf(cafDesc(24000, "opus", 0, 0, 480, 3, 0), cafPakt(0, 0, 0, 3), cafData(fifty)), 0, aviary.CodeMediaTypeUnsupported, "3 channels"},
	}
	for _, c := range []struct {
		name            string
		rate            float64
		channels        uint32
		frames          int
		code            aviary.Code
		detail          string
		kukiBits        byte
		kukiRate, kukis int
	}{
		{"Apple Lossless without ffmpeg", 16000, 1, 4096, aviary.CodeMediaTypeUnsupported, "this server has none", 16, 16000, 4096},
		{"Apple Lossless with another rate", 16000, 1, 4096, brokenCode, "disagree", 16, 8000, 4096},
		{"Apple Lossless with longer packets", 16000, 1, 4096, brokenCode, "disagree", 16, 16000, 8192},
		{"Apple Lossless with packets of 2^31 frames", 16000, 1, 1 << 31, brokenCode, "disagree", 16, 16000, 1 << 31},
		{"Apple Lossless with more channels", 16000, 2, 4096, brokenCode, "disagree", 16, 16000, 4096},
	} {
		kuki := cafChunk("kuki", put(be, uint32(c.kukis), []byte{0, c.kukiBits, 40, 10, 14, 1}, uint16(255), uint64(0), uint32(c.kukiRate)))
		files = append(files, fileCase{c.name, caf(cafDesc(c.rate, "alac", 0, 0, uint32(c.frames), c.channels, 0), kuki, cafPakt(0, 0, 0, 3), cafData(fifty)), 0, c.code, c.detail})
	}
	checkFiles(t, files)
}

// aacCAF puts the frames of an ADTS file into CAF, as Apple's recorders do: the configuration in an MPEG-4 descriptor.
func aacCAF(t *testing.T, adts []byte, priming, remainder int, version ...byte) []byte {
	t.Helper()
	const headBytes = 7
	var sizes []int
	var data []byte
	kind, index, channels := adts[2]>>6+1, adts[2]>>2&15, adts[2]&1<<2|adts[3]>>6
	for at := 0; at < len(adts); {
		n := int(adts[at+3]&3)<<11 | int(adts[at+4])<<3 | int(adts[at+5])>>5
		sizes = append(sizes, n-headBytes)
		data = append(data, adts[at+headBytes:at+n]...)
		at += n
	}
	config := []byte{kind<<3 | index>>1, index<<7 | channels<<3}
	decoder := append([]byte{0x40, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, byte(len(config))}, config...)
	es := append([]byte{0, 1, 0, 4, byte(len(decoder))}, decoder...)
	kuki := slices.Concat(version, []byte{3, 0x80, 0x80, 0x80, byte(len(es))}, es)
	valid := int64(len(sizes)*1024 - priming - remainder)
	return caf(cafDesc(float64(aacRates[index]), "aac ", 0, 0, 1024, uint32(channels), 0), cafChunk("kuki", kuki), cafPakt(valid, int32(priming), int32(remainder), sizes...), cafData(data))
}

func TestCAFAAC(t *testing.T) {
	t.Parallel()
	p := New(Config{FFmpeg: needFFmpeg(t)})
	adts := handedFile(t, "aac_adts_24k.aac")
	plain, err := p.Decode(t.Context(), bytes.NewReader(adts), int64(len(adts)), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file               []byte
		priming, remainder int
	}{
		"plain":                       {aacCAF(t, adts, 0, 0), 0, 0},
		"with the version of an esds": {aacCAF(t, adts, 0, 0, 0, 0, 0, 0), 0, 0},
		"trimmed":                     {aacCAF(t, adts, 2112, 960), 2112, 960},
	} {
		audio, err := p.Probe(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
		if want := durationOf(int64(48*1024-c.priming-c.remainder), 24000); err != nil || audio.Duration != want || audio.Codec != "aac" || audio.Container != "caf" {
			t.Errorf("%s: %+v, %v; want %v", name, audio, err, want)
		}
		pcm, err := p.Decode(t.Context(), bytes.NewReader(c.file), int64(len(c.file)), 0)
		if err != nil || (pcm.Duration()-audio.Duration).Abs() > time.Millisecond {
			t.Errorf("%s: %v, %v", name, pcm.Duration(), err)
			continue
		}
		from := c.priming * 2 / 3
		got, want := pcm[1000:len(pcm)-1000], plain[from+1000:from+len(pcm)-1000]
		if d := difference(got, want); d > -100 {
			t.Errorf("%s: differs from the same frames in ADTS by %.1f dB", name, d)
		}
	}
	lies := aacCAF(t, adts, 0, 0)
	copy(lies[20:], put(be, 8000.0))
	if _, err := p.Probe(t.Context(), bytes.NewReader(lies), int64(len(lies))); aviary.CodeOf(err) != aviary.CodeAudioBroken {
		t.Errorf("another rate: %v", err)
	}
	lies = aacCAF(t, adts, 0, 0)
	copy(lies[40:], put(be, uint32(512)))
	if _, err := p.Probe(t.Context(), bytes.NewReader(lies), int64(len(lies))); aviary.CodeOf(err) != aviary.CodeAudioBroken {
		t.Errorf("packets of another length: %v", err)
	}
}

// A table of a million packets of one byte is counted in windows, up to the limit.
func TestCAFBomb(t *testing.T) { // not in parallel: it measures memory
	const packets = 1 << 20
	file := opusCAF(cafPakt(24000, 0, 0, times(packets, 1)...), bytes.Repeat([]byte{0x0B}, packets)) // invalid as Opus, one byte each
	_, err := New(Config{MaxDuration: time.Hour}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
	if aviary.CodeOf(err) != aviary.CodeAudioBroken {
		t.Errorf("packets without frames: %v", err)
	}
	// 60 ms in each byte: 17 h.
	file = caf(cafDesc(24000, "opus", 0, 0, 1440, 1, 0), cafPakt(24000, 0, 0, times(packets, 1)...), cafData(bytes.Repeat([]byte{0x18}, packets)))
	if n := allocates(func() {
		audio, err := New(Config{MaxDuration: time.Hour}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		if err != nil || audio.Duration <= time.Hour {
			t.Errorf("%v, %v", audio.Duration, err)
		}
	}); n > probeBytes {
		t.Errorf("Probe allocates %d bytes", n)
	}
	if _, err := New(Config{}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), time.Hour); aviary.CodeOf(err) != aviary.CodeAudioTooLong {
		t.Errorf("Decode: %v", err)
	}
}

func FuzzCAF(f *testing.F) {
	seeds(f, "caf_")
	addGolden(f, "pcm_s16le.caf", "pcm_f64be.caf", "adpcm_ima_qt.caf")
	f.Add(caf(cafDesc(8000, "lpcm", 0, 2, 1, 1, 16), put(be, "data", int64(-1), uint32(0), make([]byte, 1600))))
	f.Add(opusCAF(cafPakt(1900, 312, 188, times(5, 3)...), bytes.Repeat([]byte{0x08, 0xFF, 0xFE}, 5)))
	f.Add(caf(cafDesc(24000, "opus", 0, 3, 0, 1, 0), cafChunk("pakt", put(be, int64(5), int64(2400), uint64(0)), bytes.Repeat(cafNumber(480), 5)), cafData(bytes.Repeat([]byte{0x08, 0xFF, 0xFE}, 5))))
	f.Add(caf(cafDesc(16000, "alac", 0, 0, 4096, 1, 0), cafChunk("kuki", make([]byte, 48)), cafPakt(0, 0, 0, 3), cafData(make([]byte, 10))))
	f.Fuzz(func(t *testing.T, file []byte) {
		file = bytes.Clone(file)
		copy(file, "caff\x00\x01")
		examine(t, file)
	})
}
