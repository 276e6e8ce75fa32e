package probe

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// codedFmt is a fmt chunk of blocks.
func codedFmt(tag, channels, rate, align, width int, extension []byte) []byte {
	return chunk(le, "fmt ", put(le, uint16(tag), uint16(channels), uint32(rate), uint32(0), uint16(align), uint16(width), uint16(len(extension)), extension))
}

// msExtension says how many samples a block has, and the coefficients.
func msExtension(samples int) []byte {
	return put(le, uint16(samples), uint16(7), []int16{256, 0, 512, -256, 0, 0, 192, 64, 240, 0, 460, -208, 392, -232})
}

func factChunk(frames uint32) []byte { return chunk(le, "fact", put(le, frames)) }

func TestWAVCoded(t *testing.T) {
	t.Parallel()
	const unknownSize = uint32(math.MaxUint32)
	// Blocks of 256 bytes have 500 samples in Microsoft's mono and 505 in the IMA's: at 5,000 and 5,050 Hz, 0.1 s.
	ms, ima := codedFmt(tagMicrosoft, 1, 5000, 256, 4, msExtension(500)), codedFmt(tagIMA, 1, 5050, 256, 4, put(le, uint16(505)))
	ten := make([]byte, 2560)
	wav := func(chunks ...[]byte) []byte { return riff(le, "RIFF", chunks...) }
	data := chunk(le, "data", ten)
	sized := func(size uint32) []byte { return put(le, "data", size, ten) }
	const s, brokenCode, unsupportedCode = time.Second, aviary.CodeAudioBroken, aviary.CodeMediaTypeUnsupported
	checkFiles(t, []fileCase{
		{"Microsoft", wav(ms, data), s, "", ""},
		{"Microsoft without coefficients", wav(codedFmt(tagMicrosoft, 1, 5000, 256, 4, nil), data), s, "", ""},
		{"Microsoft, stereo", wav(codedFmt(tagMicrosoft, 2, 2440, 256, 4, msExtension(244)), data), 0, brokenCode, "2440 Hz"},
		{"Microsoft, stereo, 8 kHz", wav(codedFmt(tagMicrosoft, 2, 8000, 256, 4, msExtension(244)), data), 305 * time.Millisecond, "", ""},
		{"IMA", wav(ima, data), s, "", ""},
		{"IMA, six channels", wav(codedFmt(tagIMA, 6, 4000, 256, 4, nil), data), 182500 * time.Microsecond, "", ""},
		{"samples per block not given", wav(codedFmt(tagIMA, 1, 5050, 256, 4, put(le, uint16(0))), data), s, "", ""},
		{"of unknown size", wav(ima, factChunk(0), sized(unknownSize)), s, "", ""},
		{"a short last block", wav(ms, chunk(le, "data", ten[:2560-128])), s - 51200*time.Microsecond, "", ""},
		{"fact", wav(ms, factChunk(4800), data), 960 * time.Millisecond, "", ""},
		{"fact at the end", wav(ms, factChunk(5000), data), s, "", ""},
		{"fact one block less", wav(ms, factChunk(4501), data), 900200 * time.Microsecond, "", ""},
		{"fact of all ones", wav(ms, factChunk(unknownSize), data), s, "", ""},
		{"fact of two bytes", wav(ms, chunk(le, "fact", []byte{1, 0}), data), s, "", ""},
		{"fact and unknown size", wav(ms, factChunk(4800), sized(unknownSize)), 960 * time.Millisecond, "", ""},

		{"fact claims less", wav(ms, factChunk(2500), data), 0, brokenCode, "claims 0.500 s"},
		{"fact claims more", wav(ms, factChunk(10000), data), 0, brokenCode, "claims 2.000 s"},
		{"claims 2 s", wav(ms, factChunk(10000), sized(5120)), 0, brokenCode, "cut off"},
		{"claims 0.5 s", wav(ms, sized(1280)), 0, brokenCode, "claims 0.500 s"},
		{"claims 0.5 s with a fact", wav(ms, factChunk(2500), sized(1280)), 0, brokenCode, "claims 0.500 s"},
		{"no blocks", wav(ms, chunk(le, "data", nil)), 0, brokenCode, "no audio"},
		{"less than a head", wav(ms, chunk(le, "data", ten[:6])), 0, brokenCode, "no audio"},
		{"Microsoft with other blocks than it says", wav(codedFmt(tagMicrosoft, 1, 5000, 256, 4, msExtension(5000)), data), 0, brokenCode, "5000 samples per ADPCM block"},
		{"Microsoft with too many coefficients", wav(codedFmt(tagMicrosoft, 1, 5000, 256, 4, put(le, uint16(500), uint16(257), make([]byte, 1028))), data), 0, brokenCode, "257 pairs"},
		{"Microsoft with cut coefficients", wav(codedFmt(tagMicrosoft, 1, 5000, 256, 4, msExtension(500)[:20]), data), 0, brokenCode, "7 pairs"},
		{"Microsoft with 3 channels", wav(codedFmt(tagMicrosoft, 3, 5000, 256, 4, nil), data), 0, brokenCode, "3 channels"},
		{"IMA with 3 bits", wav(codedFmt(tagIMA, 1, 5000, 256, 3, nil), data), 0, brokenCode, "3 bits"},
		{"blocks of 0 bytes", wav(codedFmt(tagIMA, 1, 5000, 0, 4, nil), data), 0, brokenCode, "blocks of 0 bytes"},
		{"blocks of a head", wav(codedFmt(tagMicrosoft, 1, 5000, 7, 4, nil), data), 0, brokenCode, "blocks of 7 bytes"},
		{"big-endian", riff(be, "RIFX", chunk(be, "fmt ", put(be, uint16(tagIMA), uint16(1), uint32(5050), uint32(0), uint16(256), uint16(4), uint16(0))), chunk(be, "data", ten)), 0, unsupportedCode, "IMA ADPCM"},
		{"TrueSpeech", wav(codedFmt(0x22, 1, 8000, 32, 1, nil), data), 0, unsupportedCode, "TrueSpeech"},
		{"GSM without ffmpeg", wav(codedFmt(tagGSM, 1, 8000, 65, 0, put(le, uint16(320))), data), 0, unsupportedCode, "this server has none"},
		{"GSM in other blocks", wav(codedFmt(tagGSM, 1, 8000, 33, 0, nil), data), 0, brokenCode, "33 bytes"},
		{"GSM in stereo", wav(codedFmt(tagGSM, 2, 8000, 65, 0, nil), data), 0, brokenCode, "2 channels"},
		{"G.726 with 6 bits", wav(codedFmt(tagG726, 1, 8000, 1, 6, nil), data), 0, brokenCode, "6 bits"},
		{"G.722 in stereo", wav(codedFmt(tagG722, 2, 16000, 2, 4, nil), data), 0, brokenCode, "2 channels"},
	})
	mp3 := handedFile(t, "golden/mp3.wav")
	sizeAt := bytes.Index(mp3, []byte("data")) + 4
	checkFiles(t, []fileCase{
		{"MP3", mp3, 396 * time.Millisecond, "", ""},
		{"MP3 of unknown size", slices.Replace(bytes.Clone(mp3), sizeAt, sizeAt+4, put(le, unknownSize)...), 396 * time.Millisecond, "", ""},
		{"MP3 that is cut", mp3[:len(mp3)-300], 0, brokenCode, "cut off"},
		{"MP3 with junk behind", append(bytes.Clone(mp3), make([]byte, 5000)...), 0, brokenCode, "5000 bytes behind"},
		{"MP3 of no bytes", riff(le, "RIFF", codedFmt(tagMP3, 1, 16000, 1, 0, nil), chunk(le, "data", nil)), 0, brokenCode, "no audio"},
	})
}

// A block that is damaged is silent, and a user is told; a file of such is refused.
func TestDamagedADPCM(t *testing.T) {
	t.Parallel()
	loud := bytes.Repeat(append([]byte{0, 100, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{0x3D}, 249)...), 10)
	for _, c := range []struct {
		bad  []int
		code aviary.Code
	}{{nil, ""}, {[]int{4}, ""}, {[]int{0, 1, 2, 3}, ""}, {[]int{0, 1, 2, 3, 4}, aviary.CodeAudioBroken}, {[]int{1, 3, 5, 7, 9}, ""}} {
		data := bytes.Clone(loud)
		for _, i := range c.bad {
			data[256*i] = 7 // coefficients that there are not
		}
		file := riff(le, "RIFF", codedFmt(tagMicrosoft, 1, 16000, 256, 4, msExtension(500)), chunk(le, "data", data))
		tr, err := New(Config{}).open(t.Context(), bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t, tr)
		if aviary.CodeOf(err) != c.code {
			t.Errorf("blocks %v: %v", c.bad, err)
		}
		if err != nil {
			continue
		}
		if warnings := tr.about().warnings; (len(warnings) == 1) != (len(c.bad) > 0) {
			t.Errorf("blocks %v: %q", c.bad, warnings)
		}
		for i := range 10 {
			silent := !slices.ContainsFunc(got[500*i:500*i+500], func(v float32) bool { return v != 0 })
			if silent != slices.Contains(c.bad, i) {
				t.Errorf("blocks %v: block %d is silent: %v", c.bad, i, silent)
			}
		}
	}
}

// Blocks are counted without being read, and a header cannot hide any.
func TestWAVCodedGuard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size, fact uint32
	}{"all said": {1 << 30, 0}, "concealed": {256 * 80, 0}, "concealed by fact": {1 << 30, 8000}, "unknown": {math.MaxUint32, 0}} {
		head := riff(le, "RIFF", codedFmt(tagIMA, 1, 8000, 256, 4, nil), factChunk(c.fact), put(le, "data", c.size))
		reads := 0
		file := tiled{head: head, tile: make([]byte, 256), size: int64(len(head)) + 1<<30, onRead: func() { reads++ }}
		audio, err := New(Config{MaxDuration: time.Hour}).Probe(t.Context(), file, file.size)
		if want := durationOf(1<<30/256*505, 8000); err != nil || audio.Duration != want || reads > 4 {
			t.Errorf("%s: %v after %d reads, %v; want %v", name, audio.Duration, reads, err, want)
		}
		if _, err := New(Config{}).Decode(t.Context(), file, file.size, 10*time.Second); aviary.CodeOf(err) != aviary.CodeAudioTooLong {
			t.Errorf("%s: Decode: %v", name, err)
		}
	}
}

// 24 bits in 4 bytes: what is said of the place of the bits is nothing, so the samples show it.
func TestWAV24In32(t *testing.T) {
	t.Parallel()
	values := []int32{0, 1 << 21, -1 << 21, 12345, -1, 1<<23 - 1, -1 << 23}
	file := func(shift int, mask uint32) []byte {
		var data []byte
		for range 600 {
			for _, v := range values {
				data = binary.LittleEndian.AppendUint32(data, uint32(v)<<shift&mask)
			}
		}
		return riff(le, "RIFF", chunk(le, "fmt ", put(le, uint16(tagPCM), uint16(1), uint32(16000), uint32(64000), uint16(4), uint16(24))), chunk(le, "data", data))
	}
	for name, c := range map[string]struct {
		file  []byte
		codec string
		bits  int
	}{
		"upper": {file(8, math.MaxUint32), "pcm_s32le", 32}, "lower": {file(0, math.MaxUint32), "pcm_s24le", 24}, "lower, with zeros above": {file(0, 1<<24-1), "pcm_s24le", 24},
	} {
		tr, err := New(Config{}).open(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
		if err != nil || tr.about().bits != c.bits || tr.about().codec != c.codec {
			t.Errorf("%s: %+v, %v", name, tr, err)
			continue
		}
		pcm, err := New(Config{}).Decode(t.Context(), bytes.NewReader(c.file), int64(len(c.file)), 0)
		if err != nil || len(pcm) != 600*len(values) {
			t.Fatalf("%s: %d samples, %v", name, len(pcm), err)
		}
		for i, v := range pcm {
			if want := float32(values[i%len(values)]) / (1 << 23); v != want {
				t.Fatalf("%s: sample %d is %v, want %v", name, i, v, want)
			}
		}
	}
	full := file(0, math.MaxUint32)
	copy(full[44:], put(le, uint32(0x12345678)))
	if _, err := New(Config{}).Probe(t.Context(), bytes.NewReader(full), int64(len(full))); aviary.CodeOf(err) != aviary.CodeAudioBroken {
		t.Errorf("all bits in use: %v", err)
	}
}

// Samples are what the header says, even if they look like frames of a codec.
func TestWAVIsNotSniffed(t *testing.T) {
	t.Parallel()
	adts := handedFile(t, "aac_adts_24k.aac")
	adts = adts[:len(adts)&^1]
	file := riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 16000, 16), chunk(le, "data", adts))
	audio, err := New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
	if err != nil || audio.Codec != "pcm_s16le" || audio.Duration != durationOf(int64(len(adts)/2), 16000) {
		t.Errorf("%+v, %v", audio, err)
	}
}

// FuzzADPCM is that of files; package adpcm has one of blocks.
func FuzzADPCM(f *testing.F) {
	seeds(f, "wav_22050_ms_adpcm", "wav_8k_gsm")
	addGolden(f, "adpcm_ms.wav", "adpcm_ima_wav.wav")
	f.Add(riff(le, "RIFF", codedFmt(tagMicrosoft, 2, 8000, 256, 4, msExtension(244)), factChunk(500), chunk(le, "data", make([]byte, 700))))
	f.Add(riff(le, "RIFF", codedFmt(tagIMA, 2, 8000, 256, 4, nil), chunk(le, "data", make([]byte, 700))))
	f.Fuzz(func(t *testing.T, file []byte) {
		file = bytes.Clone(file)
		if len(file) >= 22 { // spend no time on other formats
			copy(file, "RIFF")
			copy(file[8:], "WAVEfmt ")
			if file[20] != tagMicrosoft && file[20] != tagIMA {
				file[20] = tagIMA
			}
			file[21] = 0
		}
		examine(t, file)
	})
}
