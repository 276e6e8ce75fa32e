package probe

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// wavTail ends the GUID of an extensible format.
var wavTail = []byte{0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80, 0x00, 0x00, 0xAA, 0x00, 0x38, 0x9B, 0x71}

func extensible(tag, channels, rate, width, valid int) []byte {
	return fmtChunk(le, tagExtensible, channels, rate, width, put(le, uint16(22), uint16(valid), uint32(0), uint16(tag), wavTail)...)
}

// Each way to store samples, in two channels.
func TestWAVSampleKinds(t *testing.T) {
	t.Parallel()
	ints := func(width int) func(binary.ByteOrder, float64) []byte {
		return func(order binary.ByteOrder, v float64) []byte {
			i := int64(math.Round(v * math.Ldexp(1, width-1)))
			if width == 8 {
				return []byte{byte(i + 128)}
			}
			b := make([]byte, 8)
			order.PutUint64(b, uint64(i))
			if order == be {
				return b[8-width/8:]
			}
			return b[:width/8]
		}
	}
	float32s := func(order binary.ByteOrder, v float64) []byte { return put(order, float32(v)) }
	float64s := func(order binary.ByteOrder, v float64) []byte { return put(order, v) }
	rifxGUID := put(be, uint16(22), uint16(24), uint32(0), uint32(tagPCM), uint16(0), uint16(0x10), wavTail[6:])
	for _, c := range []struct {
		codec  string
		magic  string
		format []byte
		sample func(binary.ByteOrder, float64) []byte
	}{
		{"pcm_u8", "RIFF", fmtChunk(le, tagPCM, 2, 16000, 8), ints(8)},
		{"pcm_s16le", "RIFF", fmtChunk(le, tagPCM, 2, 16000, 16), ints(16)},
		{"pcm_s24le", "RIFF", fmtChunk(le, tagPCM, 2, 16000, 24), ints(24)},
		{"pcm_s32le", "RIFF", fmtChunk(le, tagPCM, 2, 16000, 32), ints(32)},
		{"pcm_s16le", "RIFF", fmtChunk(le, tagPCM, 2, 16000, 12), ints(16)},
		{"pcm_s24le", "RIFF", fmtChunk(le, tagPCM, 2, 16000, 20), ints(24)},
		{"pcm_f32le", "RIFF", fmtChunk(le, tagFloat, 2, 16000, 32, 0, 0), float32s},
		{"pcm_f64le", "RIFF", fmtChunk(le, tagFloat, 2, 16000, 64), float64s},
		{"pcm_s24le", "RIFF", extensible(tagPCM, 2, 16000, 24, 20), ints(24)},
		{"pcm_f32le", "RIFF", extensible(tagFloat, 2, 16000, 32, 32), float32s},
		{"pcm_u8", "RIFX", fmtChunk(be, tagPCM, 2, 16000, 8), ints(8)},
		{"pcm_s16be", "RIFX", fmtChunk(be, tagPCM, 2, 16000, 16), ints(16)},
		{"pcm_s24be", "RIFX", fmtChunk(be, tagPCM, 2, 16000, 24), ints(24)},
		{"pcm_s32be", "RIFX", fmtChunk(be, tagPCM, 2, 16000, 32), ints(32)},
		{"pcm_f32be", "RIFX", fmtChunk(be, tagFloat, 2, 16000, 32), float32s},
		{"pcm_f64be", "RIFX", fmtChunk(be, tagFloat, 2, 16000, 64), float64s},
		{"pcm_s24be", "RIFX", fmtChunk(be, tagExtensible, 2, 16000, 24, rifxGUID...), ints(24)},
	} {
		order := le
		if c.magic == "RIFX" {
			order = be
		}
		var data []byte
		for _, v := range [][2]float64{{-0.5, -0.25}, {0.25, 0.5}, {0, 0.25}} {
			data = append(append(data, c.sample(order, v[0])...), c.sample(order, v[1])...)
		}
		file := riff(order, c.magic, c.format, chunk(order, "data", data))
		p := New(Config{})
		audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		want := aviary.Audio{Container: "wav", Codec: c.codec, SampleRate: 16000, Channels: 2, Duration: 187500, Bytes: int64(len(file))}
		if err != nil || !reflect.DeepEqual(audio, want) {
			t.Errorf("%s: %+v, %v; want %+v", c.codec, audio, err, want)
		}
		pcm, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
		if err != nil || len(pcm) != 3 || pcm[0] != -0.375 || pcm[1] != 0.375 || pcm[2] != 0.125 {
			t.Errorf("%s: %v, %v", c.codec, pcm, err)
		}
	}
}

func TestWAVHeaders(t *testing.T) {
	t.Parallel()
	mono := fmtChunk(le, tagPCM, 1, 16000, 16)
	second := tone16(16000)
	data := chunk(le, "data", second)
	lying := func(size uint32, n int) []byte { return put(le, "data", size, second[:n]) }
	list := chunk(le, "LIST", []byte("INFOISFT\x06\x00\x00\x00Lavf59"))
	ds64 := func(size uint64) []byte { return chunk(le, "ds64", put(le, uint64(0), size, uint64(0), uint32(0))) }
	const s = time.Second
	for _, c := range []struct {
		name   string
		file   []byte
		want   time.Duration // or the code and a part of the detail
		code   aviary.Code
		detail string
	}{
		{"plain", riff(le, "RIFF", mono, data), s, "", ""},
		{"chunks around", riff(le, "RIFF", list, mono, list, data, list, chunk(le, "id3 ", []byte{1, 2, 3})), s, "", ""},
		{"odd chunk without its pad byte", riff(le, "RIFF", put(le, "junk", uint32(3), "abc"), mono, data), s, "", ""},
		{"odd data without its pad byte", riff(le, "RIFF", mono, put(le, "data", uint32(31999), second[:31999]), list), 31998 * s / 32000, "", ""},
		{"RIFF size 0", append(put(le, "RIFF", uint32(0), "WAVE"), append(mono, data...)...), s, "", ""},
		{"ID3 in front", append([]byte("ID3\x04\x00\x00\x00\x00\x00\x05abcde"), plainWAV(16000)...), s, "", ""},
		{"ID3v1 behind", plainWAV(16000, append([]byte("TAG"), make([]byte, 125)...)...), s, "", ""},
		{"44 bytes too many claimed", riff(le, "RIFF", mono, lying(32000+44, 32000)), s, "", ""},
		{"unknown: all ones", riff(le, "RIFF", mono, lying(math.MaxUint32, 16000)), s / 2, "", ""},
		{"unknown: all ones less the header", riff(le, "RIFF", mono, lying(math.MaxUint32-36, 16000)), s / 2, "", ""},
		{"unknown: SoX", riff(le, "RIFF", mono, lying(0x7FFFF000, 16000)), s / 2, "", ""},
		{"unknown: arecord", riff(le, "RIFF", mono, lying(0x80000000, 16000)), s / 2, "", ""},
		{"unknown: 0", riff(le, "RIFF", mono, lying(0, 16000)), s / 2, "", ""},
		{"unknown: RF64 with a ds64 of 0", riff(le, "RF64", ds64(0), mono, lying(math.MaxUint32, 16000)), s / 2, "", ""},
		{"unknown: RF64 without ds64", riff(le, "RF64", mono, lying(math.MaxUint32, 16000)), s / 2, "", ""},
		{"RF64", riff(le, "RF64", ds64(32000), mono, lying(math.MaxUint32, 32000), list), s, "", ""},
		{"BW64 with a 32-bit size", riff(le, "BW64", ds64(5), mono, data), s, "", ""},
		{"ds64 in a RIFF", riff(le, "RIFF", ds64(5), mono, data), s, "", ""},
		{"byte rate 0", riff(le, "RIFF", chunk(le, "fmt ", put(le, uint16(1), uint16(1), uint32(16000), uint32(0), uint16(2), uint16(16))), data), s, "", ""},
		{"64 channels", riff(le, "RIFF", fmtChunk(le, tagPCM, 64, 16000, 8), data), 500 * s / 16000, "", ""},

		{"claims 3 s, holds 1 s", riff(le, "RIFF", mono, lying(96000, 32000)), 0, aviary.CodeAudioBroken, "claims 3.000 s of audio, but the file holds 1.000 s"},
		{"claims 2.5 GB, holds 1 s", riff(le, "RIFF", mono, lying(2.5e9, 32000)), 0, aviary.CodeAudioBroken, "cut off"},
		{"claims 0.1 s, holds 1 s", riff(le, "RIFF", mono, lying(3200, 32000)), 0, aviary.CodeAudioBroken, "claims 0.100 s of audio, but the file holds 1.000 s"},
		{"RF64 claims 3 s", riff(le, "RF64", ds64(96000), mono, lying(math.MaxUint32, 32000)), 0, aviary.CodeAudioBroken, "cut off"},
		{"RF64 claims 2^63", riff(le, "RF64", ds64(1<<63), mono, data[:4], lying(math.MaxUint32, 32000)[4:]), 0, aviary.CodeAudioBroken, "ds64"},
		{"RF64 with a short ds64", riff(le, "RF64", chunk(le, "ds64", make([]byte, 8)), mono, data), 0, aviary.CodeAudioBroken, "ds64"},
		{"no samples", riff(le, "RIFF", mono, lying(0, 0)), 0, aviary.CodeAudioBroken, "no audio"},
		{"no samples, but chunks", riff(le, "RIFF", mono, lying(0, 0), list), 0, aviary.CodeAudioBroken, "no audio"},
		{"half a frame", riff(le, "RIFF", mono, lying(1, 1)), 0, aviary.CodeAudioBroken, "no audio"},
		{"no samples, unknown", riff(le, "RIFF", mono, lying(math.MaxUint32, 0)), 0, aviary.CodeAudioBroken, "no audio"},
		{"data before fmt", riff(le, "RIFF", data, mono), 0, aviary.CodeAudioBroken, "no fmt"},
		{"no data", riff(le, "RIFF", mono, list), 0, aviary.CodeAudioBroken, "no data"},
		{"zeros for chunks", riff(le, "RIFF", mono, make([]byte, 64)), 0, aviary.CodeAudioBroken, "no data"},
		{"two fmt", riff(le, "RIFF", mono, fmtChunk(le, tagPCM, 1, 8000, 8), data), 0, aviary.CodeAudioBroken, "two fmt"},
		{"fmt behind data", riff(le, "RIFF", mono, data, mono), 0, aviary.CodeAudioBroken, "two"},
		{"two data", riff(le, "RIFF", mono, data, data), 0, aviary.CodeAudioBroken, "two"},
		{"two files", append(plainWAV(16000), plainWAV(16000)...), 0, aviary.CodeAudioBroken, "Another WAV"},
		{"fmt of 14 bytes", riff(le, "RIFF", chunk(le, "fmt ", make([]byte, 14)), data), 0, aviary.CodeAudioBroken, "14 bytes"},
		{"fmt beyond the end", riff(le, "RIFF", put(le, "fmt ", uint32(math.MaxUint32-1), mono[8:]), data), 0, aviary.CodeAudioBroken, "more than the file has"},
		{"LIST beyond the end", riff(le, "RIFF", mono, put(le, "LIST", uint32(0xFFFFFFF0)), data), 0, aviary.CodeAudioBroken, "more than the file has"},
		{"size that wraps backwards", riff(le, "RIFF", mono, put(le, "JUNK", uint32(0xFFFFFFF8)), data), 0, aviary.CodeAudioBroken, "more than the file has"},
		{"10,000 empty chunks", riff(le, "RIFF", mono, bytes.Repeat(put(le, "junk", uint32(0)), 10_000), data), 0, aviary.CodeAudioBroken, "more than 1000"},
		{"rate 0", riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 0, 16), data), 0, aviary.CodeAudioBroken, "rate of 0 Hz"},
		{"rate 8", riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 8, 16), data), 0, aviary.CodeAudioBroken, "rate of 8 Hz"},
		{"rate 655350", riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 655350, 16), data), 0, aviary.CodeAudioBroken, "655350 Hz"},
		{"rate 2^32-1", riff(le, "RIFF", fmtChunk(le, tagPCM, 1, math.MaxUint32, 16), data), 0, aviary.CodeAudioBroken, "4294967295 Hz"},
		{"0 channels", riff(le, "RIFF", fmtChunk(le, tagPCM, 0, 16000, 16), data), 0, aviary.CodeAudioBroken, "0 channels"},
		{"65 channels", riff(le, "RIFF", fmtChunk(le, tagPCM, 65, 16000, 16), data), 0, aviary.CodeAudioBroken, "65 channels"},
		{"0 bits", riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 16000, 0), data), 0, aviary.CodeAudioBroken, "0 bits"},
		{"4 bits", riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 16000, 4), data), 0, aviary.CodeAudioBroken, "4 bits"},
		{"48-bit integers", riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 16000, 48), data), 0, aviary.CodeAudioBroken, "48 bits"},
		{"16-bit floats", riff(le, "RIFF", fmtChunk(le, tagFloat, 1, 16000, 16), data), 0, aviary.CodeAudioBroken, "16 bits"},
		{"16-bit A-law", riff(le, "RIFF", fmtChunk(le, tagALaw, 1, 16000, 16), data), 0, aviary.CodeAudioBroken, "16 bits"},
		{"wrong align", riff(le, "RIFF", chunk(le, "fmt ", put(le, uint16(1), uint16(1), uint32(16000), uint32(16000), uint16(1), uint16(16))), data), 0,
			aviary.CodeAudioBroken, "1 bytes per frame"},
		{"short extensible", riff(le, "RIFF", fmtChunk(le, tagExtensible, 1, 16000, 16), data), 0, aviary.CodeAudioBroken, "extensible"},
		{"more valid bits than there are", riff(le, "RIFF", extensible(tagPCM, 1, 16000, 16, 24), data), 0, aviary.CodeAudioBroken, "24 valid bits"},
		{"unknown extensible", riff(le, "RIFF", fmtChunk(le, tagExtensible, 1, 16000, 16, put(le, uint16(22), uint16(16), make([]byte, 20))...), data), 0,
			aviary.CodeMediaTypeUnsupported, "unknown extensible"},
		{"MP3 in WAV that is none", riff(le, "RIFF", fmtChunk(le, tagMP3, 1, 16000, 0), data), 0, aviary.CodeAudioBroken, "MPEG audio"},
		{"ADPCM in extensible", riff(le, "RIFF", extensible(0x11, 1, 16000, 8, 4), data), 0, aviary.CodeMediaTypeUnsupported, "IMA ADPCM"},
		{"unknown tag", riff(le, "RIFF", fmtChunk(le, 0x1234, 1, 16000, 16), data), 0, aviary.CodeMediaTypeUnsupported, "0x1234"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := New(Config{MaxDuration: time.Hour})
			audio, err := p.Probe(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
			if aviary.CodeOf(err) != c.code || audio.Duration != c.want {
				t.Errorf("Probe: %v, %v; want %v, %q", audio.Duration, err, c.want, c.code)
			}
			if err != nil && !strings.Contains(err.Error(), c.detail) {
				t.Errorf("Probe: %v; want a word of %q", err, c.detail)
			}
			pcm, err := p.Decode(t.Context(), bytes.NewReader(c.file), int64(len(c.file)), time.Hour)
			if aviary.CodeOf(err) != c.code || (pcm.Duration()-c.want).Abs() > slack {
				t.Errorf("Decode: %v, %v; want %v, %q", pcm.Duration(), err, c.want, c.code)
			}
		})
	}
}

// What lies behind the declared data and is no chunk counts for the guard, however short the declared data.
func TestWAVConcealedAudioIsTooLong(t *testing.T) {
	t.Parallel()
	file := longWAV(16000, 2*3600*16000)
	copy(file.head[len(file.head)-4:], put(le, uint32(16000))) // claims 1 s
	p := New(Config{MaxDuration: time.Hour})
	audio, err := p.Probe(t.Context(), file, file.size)
	if err != nil || audio.Duration != 2*time.Hour {
		t.Errorf("Probe: %v, %v; want 2 h", audio.Duration, err)
	}
	if _, err := p.Decode(t.Context(), file, file.size, time.Hour); aviary.CodeOf(err) != aviary.CodeAudioTooLong {
		t.Errorf("Decode: %v", err)
	}
	if _, err := New(Config{}).Probe(t.Context(), file, file.size); aviary.CodeOf(err) != aviary.CodeAudioBroken {
		t.Errorf("Probe without a guard: %v", err)
	}
}

// go-audio/wav counts bytes in 32 bits: longer data is handed over in several windows, and no sample is lost between them.
func TestWAVWindows(t *testing.T) {
	t.Parallel()
	const channels, frames = 3, 5000
	var data []byte
	for i := range frames * channels {
		data = binary.LittleEndian.AppendUint16(data, uint16(i*7))
	}
	s, err := newSource(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	d := newWAVData(s, 0, int64(len(data)), &wavFormat{tag: tagPCM, rate: 16000, channels: channels, frameBytes: 2 * channels, pcm: pcmFormat{bytes: 2}})
	d.windowBytes = 1000 // 166 frames and 4 bytes
	block, got := make([]float32, 100), 0
	for {
		n, err := d.read(block)
		if err != nil {
			break
		}
		for i := range n * channels {
			if want := float32(int16((got*channels+i)*7)) / 32768; block[i] != want {
				t.Fatalf("sample %d is %v, want %v", got*channels+i, block[i], want)
			}
		}
		got += n
	}
	if got != frames {
		t.Errorf("%d frames, want %d", got, frames)
	}
}
