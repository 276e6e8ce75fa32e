package probe

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/aviary-asr/aviary"
)

// pcmMP4 is a file of so many mono samples at 16 kHz, each of the size that stsz gives.
func pcmMP4(entry, media []byte, size, samples int) mp4Parts {
	p := aacMP4(0)
	p.mdhd = mp4Full("mdhd", uint64(0), uint32(16000), uint32(samples), uint32(0))
	p.mvhd = nil
	p.stsd = mp4Full("stsd", uint32(1), entry)
	p.stts = mp4Full("stts", uint32(1), uint32(samples), uint32(1))
	p.stsc = mp4Full("stsc", uint32(1), uint32(1), uint32(samples), uint32(1))
	p.stsz = mp4Full("stsz", uint32(size), uint32(samples))
	p.media = media
	return p
}

// lpcmEntry is QuickTime's sample entry of version 2.
func lpcmEntry(bits, word int, flags uint32) []byte {
	return mp4Box("lpcm", make([]byte, 6), uint16(1), uint16(2), make([]byte, 6), uint16(3), uint16(16), int16(-2), uint16(0), uint32(1<<16),
		uint32(72), float64(16000), uint32(1), uint32(0x7F000000), uint32(bits), flags, uint32(word), uint32(1))
}

func TestMP4PCM(t *testing.T) {
	t.Parallel()
	pcmC := func(flags, bits byte) []byte { return mp4Full("pcmC", flags, bits) }
	for _, c := range []struct {
		name, codec string
		entry       []byte
		size        int
		media       []byte // one sample
		want        float32
	}{
		{"ipcm, little endian", "pcm_s16le", mp4Entry("ipcm", 1, 16, 16000, pcmC(1, 16)), 2, []byte{0, 0x40}, 0.5},
		{"ipcm, big endian", "pcm_s24be", mp4Entry("ipcm", 1, 24, 16000, pcmC(0, 24)), 3, []byte{0xC0, 0, 0}, -0.5},
		{"fpcm", "pcm_f32be", mp4Entry("fpcm", 1, 32, 16000, pcmC(0, 32)), 4, []byte{0x3F, 0, 0, 0}, 0.5},
		{"a rate that stands in a box of its own", "pcm_s16le", mp4Entry("ipcm", 1, 16, 1, mp4Full("srat", uint32(16000)), pcmC(1, 16)), 2, []byte{0, 0x40}, 0.5},
		{"a rate that does not fit", "pcm_s16le", mp4Entry("ipcm", 1, 16, 0, pcmC(1, 16)), 2, []byte{0, 0x40}, 0.5},
		{"lpcm, unsigned", "pcm_u8", lpcmEntry(8, 1, 0), 1, []byte{0xC0}, 0.5},
		{"lpcm, signed, big endian", "pcm_s16be", lpcmEntry(16, 2, 2|4|8), 2, []byte{0x40, 0}, 0.5},
		{"lpcm, floats", "pcm_f64le", lpcmEntry(64, 8, 1|8), 8, []byte{0, 0, 0, 0, 0, 0, 0xE0, 0x3F}, 0.5},
		{"lpcm, 20 bits in the upper ones of 24", "pcm_s24le", lpcmEntry(20, 3, 4|16), 3, []byte{0, 0, 0x40}, 0.5},
		{"lpcm, 24 bits in the lower ones of 32", "pcm_s24le", lpcmEntry(24, 4, 4), 4, []byte{0, 0, 0x40, 0xFF}, 0.5},
		{"sizes of 1 byte", "pcm_s16be", mp4Entry("twos", 1, 16, 16000), 1, []byte{0x40, 0}, 0.5},
		{"24 bits with their bytes swapped", "pcm_s24le", mp4Entry("in24", 1, 24, 16000, mp4Box("wave", mp4Box("enda", uint16(1)))), 3, []byte{0, 0, 0x40}, 0.5},
	} {
		const samples = 2000
		file := pcmMP4(c.entry, bytes.Repeat(c.media, samples), c.size, samples).file()
		audio, err := New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		if err != nil || audio.Codec != c.codec || audio.SampleRate != 16000 || audio.Duration != durationOf(samples, 16000) {
			t.Errorf("%s: %+v, %v, want %s", c.name, audio, err, c.codec)
			continue
		}
		pcm, err := New(Config{}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
		if err != nil || len(pcm) != samples || slices.ContainsFunc(pcm, func(v float32) bool { return v != c.want }) {
			t.Errorf("%s: %d samples %v..., %v, want %v", c.name, len(pcm), pcm[:min(len(pcm), 3)], err, c.want)
		}
	}
}

func TestMP4PCMThatIsNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		entry []byte
		size  int
		code  aviary.Code
	}{
		{"no bits", mp4Entry("sowt", 1, 0, 16000), 2, isUnsupported},
		{"64,000 bits", mp4Entry("sowt", 1, 64000, 16000), 2, isUnsupported},
		{"half floats", mp4Entry("fpcm", 1, 16, 16000, mp4Full("pcmC", uint8(1), uint8(16))), 2, isUnsupported},
		{"lpcm without words", lpcmEntry(16, 0, 4), 2, isUnsupported},
		{"lpcm without bits", lpcmEntry(0, 2, 4), 2, isUnsupported},
		{"lpcm in words that are too small", lpcmEntry(24, 2, 4), 2, isUnsupported},
		{"lpcm of an older version", mp4Entry("lpcm", 1, 16, 16000), 2, isUnsupported},
		{"no channels", mp4Entry("sowt", 0, 16, 16000), 2, isBroken},
		{"65,535 channels", mp4Entry("sowt", 65535, 16, 16000), 2, isBroken},
		{"a rate of 1 Hz", mp4Entry("sowt", 1, 16, 1), 2, isBroken},
		{"samples of 3 bytes for 2", mp4Entry("sowt", 1, 16, 16000), 3, isBroken},
		{"another rate than the times have", mp4Entry("sowt", 1, 16, 8000), 2, isBroken},
	} {
		file := pcmMP4(c.entry, make([]byte, 6000), c.size, 2000).file()
		if _, err := New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file))); aviary.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
		}
	}
}

// An edit list is obeyed to the frame, also far from the start, where what is before is not decoded.
func TestMP4EditListIsObeyed(t *testing.T) {
	t.Parallel()
	const samples = 80000
	media := make([]byte, 0, 2*samples)
	for i := range samples {
		media = binary.BigEndian.AppendUint16(media, uint16(i%30000))
	}
	for _, start := range []int{0, 1, 100, 16000, 16001, 50000, 79998} {
		for _, size := range []int{1, 2} {
			p := pcmMP4(mp4Entry("twos", 1, 16, 16000), media, size, samples)
			p.mvhd = mp4Full("mvhd", uint64(0), uint32(16000), uint32(samples), make([]byte, 80))
			p.elst = mp4Full("elst", uint32(1), uint32(2), uint32(start), uint32(1<<16))
			file := p.file()
			pcm, err := New(Config{}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
			if want := float32(start%30000) / 32768; err != nil || len(pcm) != 2 || pcm[0] != want || pcm[1] != want+1.0/32768 {
				t.Errorf("from %d on: %v, %v, want %v", start, pcm, err, want)
			}
		}
	}
}

// What an edit list hides is looked at also when Decode takes a large file at its word, and has no need to read it to its end.
func TestMP4HiddenTailIsLookedAt(t *testing.T) {
	t.Parallel()
	const samples = 3 << 20
	p := pcmMP4(mp4Entry("twos", 1, 16, 16000), make([]byte, 2*samples), 2, samples)
	p.mvhd = mp4Full("mvhd", uint64(0), uint32(16000), uint32(samples), make([]byte, 80))
	p.elst = mp4Full("elst", uint32(1), uint32(16000), uint32(0), uint32(1<<16))
	for _, c := range []struct {
		lost int
		code aviary.Code
	}{{0, ""}, {2, isBroken}} {
		p.first, p.media = true, p.media[:2*samples-c.lost]
		file := p.file()
		pcm, err := New(Config{}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
		if aviary.CodeOf(err) != c.code || err == nil && len(pcm) != 16000 {
			t.Errorf("%d bytes lost: %d samples, %v", c.lost, len(pcm), err)
		}
	}
}

// AMR in 3GP, as phones recorded it: packets of one frame or of several, in modes of different sizes.
func TestMP4AMR(t *testing.T) {
	t.Parallel()
	frame := func(sizes *[16]int, mode int) []byte {
		return append([]byte{byte(mode<<3 | 4)}, make([]byte, max(sizes[mode], 0))...)
	}
	for _, c := range []struct {
		name, format, codec string
		rate                int
		packet              []byte
		frames              int
		code                aviary.Code
	}{
		{"a frame of 12.2 kbit/s", "samr", "amr_nb", 8000, frame(&amrNarrow, 7), 1, ""},
		{"ten frames", "samr", "amr_nb", 8000, bytes.Repeat(frame(&amrNarrow, 0), 10), 10, ""},
		{"a wide frame", "sawb", "amr_wb", 16000, frame(&amrWide, 8), 1, ""},
		{"a frame that is cut off", "samr", "", 0, frame(&amrNarrow, 7)[:31], 1, isBroken},
		{"a frame of no mode", "samr", "", 0, frame(&amrNarrow, 12), 1, isBroken},
	} {
		const packets = 25
		rate := max(c.rate, 8000)
		p := aacMP4(0)
		p.mdhd = mp4Full("mdhd", uint64(0), uint32(rate), uint32(packets*c.frames*rate/50), uint32(0))
		p.stsd = mp4Full("stsd", uint32(1), mp4Entry(c.format, 2, 16, 8000, mp4Box("damr", "test\x00\x81\xFF\x00\x01")))
		p.stsz = mp4Full("stsz", uint32(len(c.packet)), uint32(packets))
		p.stsc = mp4Full("stsc", uint32(1), uint32(1), uint32(packets), uint32(1))
		p.media = bytes.Repeat(c.packet, packets)
		file := p.file()
		audio, err := New(Config{FFmpeg: installed}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		want := durationOf(int64(packets*c.frames), 50)
		if aviary.CodeOf(err) != c.code || err == nil && (audio.Codec != c.codec || audio.SampleRate != c.rate || audio.Channels != 1 || audio.Duration != want) {
			t.Errorf("%s: %+v, %v", c.name, audio, err)
		}
		if err != nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			pcm, err := New(Config{FFmpeg: needFFmpeg(t)}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
			if err != nil || pcm.Duration() != want {
				t.Errorf("%v, %v, want %v", pcm.Duration(), err, want)
			}
		})
	}
}
