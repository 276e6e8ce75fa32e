package probe

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// Real files of each codec, and in each arrangement of boxes (tools/probe-golden). They hold 4,000 samples at 16 kHz; those in fragments that have
// no edit list also the encoder's delay and padding.
var goldenMP4 = []struct {
	file, container, codec string
	rate                   int
	frames                 int64 // to be heard
	from                   int   // where the speech starts in what is heard, at 16 kHz; before 0: so much of it is cut
	most                   float64
	warning                string
}{
	{"mp4_aac.m4a", "m4a", "aac", 16000, 4000, 0, -10, ""},
	{"mp4_aac_fast.mov", "mov", "aac", 16000, 4000, 0, -10, ""},
	{"mp4_aac_frag.mp4", "mp4", "aac", 16000, 5 * 1024, 1024, -10, ""},
	{"mp4_aac_dash.mp4", "mp4", "aac", 16000, 5 * 1024, 1024, -10, ""},
	{"mp4_aac_delay.mp4", "mp4", "aac", 16000, 4 * 1024, 0, -10, ""},
	{"mp4_aac_video.mp4", "mp4", "aac", 16000, 4000, 0, -10, ""},
	{"mp4_aac_video_frag.mp4", "mp4", "aac", 16000, 5 * 1024, 1024, -10, ""},
	{"mp4_aac_two.mp4", "mp4", "aac", 16000, 4000, 0, -10, "2 audio tracks"},
	{"mp4_aac_timecode.mov", "mov", "aac", 16000, 4000, 0, -10, ""},
	{"mp4_aac_cut.m4a", "m4a", "aac", 16000, 2400, -1600, -10, ""},
	{"mp4_alac.m4a", "m4a", "alac", 16000, 4000, 0, -140, ""},
	{"mp4_alac_frag.mov", "mov", "alac", 16000, 4000, 0, -140, ""},
	{"mp4_flac.mp4", "mp4", "flac", 16000, 4000, 0, -140, ""},
	{"mp4_flac_frag.mp4", "mp4", "flac", 16000, 4000, 0, -140, ""},
	{"mp4_opus.mp4", "mp4", "opus", 48000, 12000, 0, -6, ""},
	{"mp4_opus_frag.mp4", "mp4", "opus", 48000, 12168, 0, -6, ""},
	{"mp4_mp3.mp4", "mp4", "mp3", 16000, 4000, 0, -10, ""},
	{"mp4_mp3.mov", "mov", "mp3", 16000, 4000, 0, -10, ""},
	{"mp4_mp2.mp4", "mp4", "mp2", 16000, 4112, 0, -10, ""},
	{"mp4_vorbis.mp4", "mp4", "vorbis", 16000, 4000, 0, -6, ""},
	{"mp4_ac3.mp4", "mp4", "ac3", 48000, 12000, 0, -10, ""},
	{"mp4_eac3.mov", "mov", "eac3", 48000, 12000, 0, -10, ""},
}

// inFragments knows the files that do not say how long they are.
var inFragments = regexp.MustCompile("frag|dash|delay")

func goldenFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// installed stands for an ffmpeg, for tests that do not come to decode.
var installed = &ffmpeg.Command{Path: "/nonexistent"}

func TestGoldenMP4(t *testing.T) {
	t.Parallel()
	for _, c := range goldenMP4 {
		file := goldenFile(t, c.file)
		rep, err := New(Config{FFmpeg: installed}).Inspect(t.Context(), bytes.NewReader(file), int64(len(file)))
		if err != nil || rep.Container != c.container || rep.Codec != c.codec || rep.SampleRate != c.rate || rep.Channels != 1 ||
			rep.Duration != durationOf(c.frames, c.rate) || rep.HasClaim == inFragments.MatchString(c.file) {
			t.Errorf("%s: %+v, %v", c.file, rep, err)
		}
		if all := strings.Join(rep.Warnings, " "); (all != "") != (c.warning != "") || !strings.Contains(all, c.warning) {
			t.Errorf("%s: warnings %q, want one with %q", c.file, rep.Warnings, c.warning)
		}
	}
}

// What is decoded is the speech, where it should be: nothing of an encoder's delay is left, and nothing is missing.
func TestGoldenMP4Samples(t *testing.T) {
	t.Parallel()
	speech := goldenSamples(t, "mp4_speech.f32")
	for _, c := range goldenMP4 {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			file := goldenFile(t, c.file)
			p := New(Config{})
			if _, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file))); aviary.CodeOf(err) == aviary.CodeMediaTypeUnsupported {
				p = New(Config{FFmpeg: needFFmpeg(t)})
			}
			pcm, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
			if want := (c.frames*aviary.SampleRate + int64(c.rate) - 1) / int64(c.rate); err != nil || int64(len(pcm)) != want {
				t.Fatalf("%d samples, want %d, %v", len(pcm), want, err)
			}
			got, want := []float32(pcm[max(c.from, 0):]), speech[max(-c.from, 0):]
			n := min(len(got), len(want))
			if d := difference(got[:n], want[:n]); d > c.most {
				t.Errorf("differs from the speech by %.1f dB, want below %.0f dB", d, c.most)
			}
		})
	}
}

// mp4Case is a file that is put together, and the answer to it.
type mp4Case struct {
	name   string
	change func(*mp4Parts) // of a file with 16 packets, which last 2.048 s
	code   aviary.Code
	words  string  // in the detail, or in a warning
	length float64 // seconds, if it is accepted
}

func checkMP4(t *testing.T, cases []mp4Case) {
	t.Helper()
	for _, c := range cases {
		parts := aacMP4(16)
		c.change(&parts)
		file := parts.file()
		rep, err := New(Config{FFmpeg: installed}).Inspect(t.Context(), bytes.NewReader(file), int64(len(file)))
		said := strings.Join(rep.Warnings, " ")
		if err != nil {
			said = aviary.ProblemOf(err).Detail
		}
		want := time.Duration(c.length * float64(time.Second))
		if aviary.CodeOf(err) != c.code || !strings.Contains(said, c.words) || c.words == "" && said != "" && err == nil ||
			err == nil && (rep.Duration-want).Abs() > time.Millisecond {
			t.Errorf("%s: %v, %q, %v; want %v, %q, %q", c.name, rep.Duration, rep.Warnings, err, want, c.code, c.words)
		}
	}
}

const (
	isBroken      = aviary.CodeAudioBroken
	isUnsupported = aviary.CodeMediaTypeUnsupported
)

func TestMP4Boxes(t *testing.T) {
	t.Parallel()
	wide := func(kind string, body []byte) []byte { return put(be, uint32(1), kind, uint64(len(body)+16), body) }
	checkMP4(t, []mp4Case{
		{"as it should be", func(*mp4Parts) {}, "", "", 2.048},
		{"moov first", func(p *mp4Parts) { p.first = true }, "", "", 2.048},
		{"no ftyp", func(p *mp4Parts) { p.ftyp = nil }, "", "", 2.048},
		{"wide before mdat", func(p *mp4Parts) { p.ftyp = mp4Box("wide") }, "", "", 2.048},
		{"reserved space first", func(p *mp4Parts) { p.ftyp = mp4Box("free", make([]byte, 5000)) }, "", "", 2.048},
		{"64-bit sizes", func(p *mp4Parts) {
			p.ftyp, p.stsz = wide("ftyp", []byte("mp42\x00\x00\x00\x00")), wide("stsz", p.stsz[8:])
		}, "", "", 2.048},
		{"a last box of unknown size", func(p *mp4Parts) { p.behind = put(be, uint32(0), "mdat", make([]byte, 100)) }, "", "", 2.048},
		{"a list that ends with zeros", func(p *mp4Parts) { p.more = mp4Box("udta", mp4Box("abcd"), uint32(0)) }, "", "", 2.048},

		{"a box larger than its parent", func(p *mp4Parts) { p.stts[3] = 0xFF }, isBroken, `"stts"`, 0},
		{"a box smaller than its header", func(p *mp4Parts) { p.stts[3] = 7 }, isBroken, `"stts"`, 0},
		{"a 64-bit size that is too small", func(p *mp4Parts) { p.ftyp = put(be, uint32(1), "ftyp", uint64(15)) }, isBroken, `"ftyp"`, 0},
		{"a 64-bit size that is negative", func(p *mp4Parts) { p.ftyp = put(be, uint32(1), "ftyp", uint64(1)<<63) }, isBroken, `"ftyp"`, 0},
		{"nested too deep", func(p *mp4Parts) {
			for range 20 {
				p.stsd = mp4Box("stbl", p.stsd)
			}
		}, isBroken, "nested", 0},
		{"too many boxes", func(p *mp4Parts) { p.more = bytes.Repeat(mp4Box("free"), 100_001) }, isBroken, "boxes", 0},
		{"two tables of sizes", func(p *mp4Parts) { p.stsz = append(p.stsz, p.stsz...) }, isBroken, "two boxes", 0},
		{"no mdhd", func(p *mp4Parts) { p.mdhd = nil }, isBroken, "mdhd", 0},
		{"no tkhd", func(p *mp4Parts) { p.tkhd = nil }, isBroken, "tkhd", 0},
		{"no stsd", func(p *mp4Parts) { p.stsd = nil }, isBroken, "stsd", 0},
		{"no stsz", func(p *mp4Parts) { p.stsz = nil }, isBroken, "stsz", 0},
		{"no stsc", func(p *mp4Parts) { p.stsc = nil }, isBroken, "stsc", 0},
		{"no stts", func(p *mp4Parts) { p.stts = nil }, "", "", 2.048},
		{"headers that are too short", func(p *mp4Parts) { p.mdhd = mp4Full("mdhd") }, isBroken, "too short", 0},
		{"a short stsd", func(p *mp4Parts) { p.stsd = mp4Full("stsd", uint32(1), mp4Box("mp4a", make([]byte, 27))) }, isBroken, "too short", 0},

		{"another movie behind", func(p *mp4Parts) { p.behind = aacMP4(1).file() }, isBroken, "Another movie", 0},
		{"junk behind", func(p *mp4Parts) { p.behind = []byte("\xff\xfe\xfd\xfc\x01\x02\x03\x04junk") }, "", "", 2.048},
		{"zeros behind", func(p *mp4Parts) { p.behind = make([]byte, 100) }, "", "", 2.048},
		{"a box that is cut off behind", func(p *mp4Parts) { p.behind = put(be, uint32(1000), "mdat", make([]byte, 100)) }, isBroken, `"mdat"`, 0},
		{"a fragment that is not announced", func(p *mp4Parts) { p.behind = mp4Box("moof") }, isBroken, "fragment", 0},
		{"a fragment before, not announced", func(p *mp4Parts) { p.ftyp = mp4Box("moof") }, isBroken, "fragment", 0},
	})
}

// Files without a movie are refused for what they are.
func TestMP4WithoutMovie(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file string
		code       aviary.Code
		words      string
	}{
		{"an image", string(put(be, mp4Box("ftyp", "heicmif1"), mp4Full("meta"), mp4Box("mdat", "..."))), isUnsupported, "image"},
		{"a fragment", string(moof("....", func(uint32) []byte { return nil })), isBroken, "fragment"},
		{"ftyp alone", string(mp4Box("ftyp", "M4A ")), isBroken, "moov"},
		{"a recording that was not finished", string(put(be, mp4Box("ftyp", "M4A "), uint32(0), "mdat", make([]byte, 99))), isBroken, "never finished"},
		{"an empty movie", string(mp4Box("moov")), aviary.CodeAudioNoStream, "no audio track"},
		{"a movie with a compressed header", string(mp4Box("moov", mp4Box("cmov", "..."))), isUnsupported, "compressed"},
		{"a movie of references", string(mp4Box("moov", mp4Box("rmra", "..."))), isUnsupported, "other files"},
		{"free space alone", string(mp4Box("free", "...")), isBroken, "moov"},
	} {
		_, err := New(Config{}).Probe(t.Context(), strings.NewReader(c.file), int64(len(c.file)))
		if aviary.CodeOf(err) != c.code || !strings.Contains(aviary.ProblemOf(err).Detail, c.words) {
			t.Errorf("%s: %v, want %q with %q", c.name, err, c.code, c.words)
		}
	}
	for _, text := range []string{"\x00\x00\x00", "    free beer", "well, wide open", "12345678mdat"} {
		if sniffMP4([]byte(text)) {
			t.Errorf("%q is taken for MP4", text)
		}
	}
}

func TestMP4Tables(t *testing.T) {
	t.Parallel()
	sizes := func(kind string, bits uint32, table ...byte) []byte { return mp4Full(kind, bits, uint32(16), table) }
	checkMP4(t, []mp4Case{
		{"a size for each", func(p *mp4Parts) { p.stsz = sizes("stsz", 0, bytes.Repeat([]byte{0, 0, 0, 4}, 16)...) }, "", "", 2.048},
		{"sizes of 4 bits", func(p *mp4Parts) { p.stsz = sizes("stz2", 4, bytes.Repeat([]byte{0x44}, 8)...) }, "", "", 2.048},
		{"sizes of 8 bits", func(p *mp4Parts) { p.stsz = sizes("stz2", 8, bytes.Repeat([]byte{4}, 16)...) }, "", "", 2.048},
		{"sizes of 16 bits", func(p *mp4Parts) { p.stsz = sizes("stz2", 16, bytes.Repeat([]byte{0, 4}, 16)...) }, "", "", 2.048},
		{"sizes of 5 bits", func(p *mp4Parts) { p.stsz = sizes("stz2", 5, bytes.Repeat([]byte{4}, 16)...) }, isBroken, "5 bits", 0},
		{"a size of 0", func(p *mp4Parts) { p.stsz = sizes("stz2", 4, append(bytes.Repeat([]byte{0x44}, 7), 0x40)...) }, isBroken, "no bytes", 0},
		{"fewer sizes than claimed", func(p *mp4Parts) { p.stsz = sizes("stz2", 4, bytes.Repeat([]byte{0x44}, 7)...) }, isBroken, "more than its", 0},
		{"4 billion sizes", func(p *mp4Parts) { p.stsz = mp4Full("stsz", uint32(0), uint32(1<<32-1)) }, isBroken, "more than its", 0},
		{"4 billion samples of one size", func(p *mp4Parts) { p.stsz = mp4Full("stsz", uint32(4), uint32(1<<32-1)) }, isBroken, "", 0},
		{"samples of 4 GB", func(p *mp4Parts) { p.stsz = mp4Full("stsz", uint32(1<<32-1), uint32(16)) }, isBroken, "cut off", 0},
		{"no samples", func(p *mp4Parts) { p.stsz = mp4Full("stsz", uint32(4), uint32(0)) }, isBroken, "empty", 0},

		{"64-bit chunk offsets", func(p *mp4Parts) { p.stco = mp4Full("co64", uint32(1), uint64(p.mediaAt())) }, "", "", 2.048},
		{"a chunk far behind the end", func(p *mp4Parts) { p.stco = mp4Full("co64", uint32(1), uint64(1)<<63) }, isBroken, "cut off", 0},
		{"a chunk one byte too far", func(p *mp4Parts) { p.stco = mp4Full("stco", uint32(1), uint32(len(p.file())-63)) }, isBroken, "cut off", 0},
		{"no chunks", func(p *mp4Parts) { p.stco = mp4Full("stco", uint32(0)) }, isBroken, "chunks hold", 0},
		{"4 billion chunks", func(p *mp4Parts) { p.stco = mp4Full("stco", uint32(1<<32-1)) }, isBroken, `"stco"`, 0},
		{"more samples than in chunks", func(p *mp4Parts) { p.stsc = mp4Full("stsc", uint32(1), uint32(1), uint32(15), uint32(1)) }, isBroken, "1 fewer", 0},
		{"a chunk for each sample", func(p *mp4Parts) {
			p.stsc = mp4Full("stsc", uint32(1), uint32(1), uint32(1), uint32(1))
			p.stco = mp4Full("stco", uint32(16), bytes.Repeat(put(be, uint32(p.mediaAt())), 16))
		}, "", "", 2.048},
		{"chunks of two kinds", func(p *mp4Parts) {
			p.stsc = mp4Full("stsc", uint32(2), uint32(1), uint32(4), uint32(1), uint32(3), uint32(8), uint32(1))
			p.stco = mp4Full("stco", uint32(3), bytes.Repeat(put(be, uint32(p.mediaAt())), 3))
		}, "", "", 2.048},
		{"chunks that start at the second", func(p *mp4Parts) { p.stsc = mp4Full("stsc", uint32(1), uint32(2), uint32(16), uint32(1)) }, isBroken, "chunk 1", 0},
		{"chunks of no samples", func(p *mp4Parts) { p.stsc = mp4Full("stsc", uint32(1), uint32(1), uint32(0), uint32(1)) }, isBroken, "stsc", 0},
		{"chunks that do not rise", func(p *mp4Parts) {
			p.stsc = mp4Full("stsc", uint32(2), uint32(1), uint32(16), uint32(1), uint32(1), uint32(16), uint32(1))
		}, isBroken, "stsc", 0},

		{"an entry of stsd that is not there", func(p *mp4Parts) { p.stsc = mp4Full("stsc", uint32(1), uint32(1), uint32(16), uint32(2)) }, isBroken, "sample entry 2", 0},
		{"the same entry twice", func(p *mp4Parts) { twoEntries(p, "\x15\x88") }, "", "", 2.048},
		{"another setup in between", func(p *mp4Parts) { twoEntries(p, "\x15\x90") }, isUnsupported, "changes its codec", 0},
		{"samples in another file", func(p *mp4Parts) { p.dref = mp4Full("dref", uint32(1), mp4Full("url ", "file:///etc/passwd\x00")) }, isUnsupported, "another file", 0},
		{"cut off", func(p *mp4Parts) { p.first, p.media = true, p.media[:63] }, isBroken, "cut off", 0},
	})
}

// twoEntries makes the second half of the samples use an entry of its own.
func twoEntries(p *mp4Parts, setup string) {
	p.stsd = mp4Full("stsd", uint32(2), mp4Entry("mp4a", 1, 16, 8000, esds(0x40, "\x15\x88")), mp4Entry("mp4a", 1, 16, 8000, esds(0x40, setup)))
	p.stsc = mp4Full("stsc", uint32(2), uint32(1), uint32(8), uint32(1), uint32(2), uint32(8), uint32(2))
	p.stco = mp4Full("stco", uint32(2), uint32(p.mediaAt()), uint32(p.mediaAt()+32))
}

func TestMP4Claims(t *testing.T) {
	t.Parallel()
	mdhd := func(timescale, ticks uint32) func(*mp4Parts) {
		return func(p *mp4Parts) { p.mdhd = mp4Full("mdhd", uint64(0), timescale, ticks, uint32(0)) }
	}
	stts := func(claim uint32, table ...uint32) func(*mp4Parts) {
		return func(p *mp4Parts) {
			mdhd(8000, claim)(p)
			p.stts = mp4Full("stts", uint32(len(table)/2), table)
		}
	}
	checkMP4(t, []mp4Case{
		{"wide times", func(p *mp4Parts) {
			p.mdhd = mp4Box("mdhd", uint32(1<<24), uint64(0), uint64(0), uint32(8000), uint64(16384), uint32(0))
			p.tkhd = mp4Box("tkhd", uint32(1<<24), uint64(0), uint64(0), uint32(1), make([]byte, 80))
		}, "", "", 2.048},
		{"another timescale", mdhd(1000, 2048), "", "", 2.048},
		{"two packets of padding more", mdhd(8000, 16384+2048), "", "", 2.048},
		{"a timescale of 0", mdhd(0, 16384), isBroken, "timescale", 0},
		{"1 s claimed", mdhd(8000, 8000), isBroken, "claims 1.000 s", 0},
		{"49 days claimed", mdhd(1000, 1<<32-2), isBroken, "claims 4294967.294 s", 0},
		{"nothing claimed but by mvhd", mdhd(8000, 0), "", "", 2.048},
		{"nothing claimed but 1 s by mvhd", func(p *mp4Parts) {
			mdhd(8000, 1<<32-1)(p)
			p.mvhd = mp4Full("mvhd", uint64(0), uint32(1000), uint32(1000), make([]byte, 80))
		}, isBroken, "claims 1.000 s", 0},
		{"nothing claimed", func(p *mp4Parts) { mdhd(8000, 0)(p); p.mvhd = nil }, "", "", 2.048},

		{"packets of 1 tick", stts(16, 16, 1), isBroken, "claims 0.002 s", 0},
		{"packets of 1 tick, 2 s claimed", stts(16384, 16, 1), "", "", 2.048},
		{"a gap of 100 s", stts(16384+800000, 8, 1024, 1, 801024, 7, 1024), "", "gaps of 100.0 s", 2.048},
		{"the same at the end", stts(16384+800000, 15, 1024, 1, 801024), isBroken, "claims", 0},
		{"a gap that is not claimed", stts(16384, 8, 1024, 1, 801024, 7, 1024), "", "", 2.048},
		{"gaps everywhere", stts(16*50000, 8, 50001, 8, 49999), isBroken, "claims", 0},
		{"a clock that is 12 % slow", stts(16*900, 8, 901, 8, 899), "", "", 2.048},
		{"a table of 4 billion entries", func(p *mp4Parts) { p.stts = mp4Full("stts", uint32(1<<32-1)) }, isBroken, `"stts"`, 0},
	})
}

func TestMP4EditLists(t *testing.T) {
	t.Parallel()
	const empty, normal = uint32(1<<32 - 1), uint32(1 << 16)
	elst := func(entries ...uint32) func(*mp4Parts) {
		return func(p *mp4Parts) { p.elst = mp4Full("elst", uint32(len(entries)/3), entries) }
	}
	long := func(entries ...uint32) func(*mp4Parts) {
		return func(p *mp4Parts) {
			*p = aacMP4(7200 * 8000 / 1024)
			elst(entries...)(p)
		}
	}
	checkMP4(t, []mp4Case{
		{"everything", elst(16384, 0, normal), "", "", 2.048},
		{"an encoder's delay and padding", elst(16000-2112, 2112, normal), "", "", 1.736},
		{"up to the end", elst(0, 1024, normal), "", "", 1.92},
		{"no entries", elst(), "", "", 2.048},
		{"more than there is", elst(1<<32-1, 0, normal), "", "", 2.048},
		{"wide", func(p *mp4Parts) {
			p.elst = mp4Box("elst", uint32(1<<24), uint32(1), uint64(8000), uint64(1024), normal)
		}, "", "hides 1.0 s", 1},
		{"a delay", elst(80000, empty, normal, 16384, 0, normal), "", "starts 10.0 s", 2.048},
		{"1 s out of the middle", elst(8000, 5000, normal), "", "hides 1.0 s", 1},
		{"1 s at the start of 2 h", long(8000, 0, normal), "", "hides 7199.0 s", 1},
		{"1 s at the end of 2 h", long(8000, 7198*8000, normal), "", "hides 7199.0 s", 1},
		{"adjoining parts", elst(8000, 0, normal, 8384, 8000, normal), "", "", 2.048},
		{"silence behind", elst(16384, 0, normal, 9999, empty, normal), "", "", 2.048},

		{"several parts", elst(8000, 0, normal, 4000, 9000, normal), isUnsupported, "several parts", 0},
		{"one part over and over", elst(8000, 0, normal, 8000, 0, normal), isUnsupported, "several parts", 0},
		{"silence between", elst(8000, 0, normal, 8000, empty, normal, 8384, 8000, normal), isUnsupported, "several parts", 0},
		{"double speed", elst(8192, 0, 2*normal), isUnsupported, "speed", 0},
		{"standing still", elst(8192, 0, 0), isUnsupported, "speed", 0},
		{"nothing but silence", elst(8192, empty, normal), isBroken, "presents nothing", 0},
		{"behind the end", elst(8000, 100000, normal), isBroken, "", 0},
		{"far behind the end", elst(8000, 1<<31-1, normal), isBroken, "", 0},
		{"a negative time", elst(8000, 1<<32-2, normal), isBroken, "negative", 0},
		{"more entries than fit", func(p *mp4Parts) { p.elst = mp4Full("elst", uint32(1<<30), uint64(0)) }, isBroken, `"elst"`, 0},
		{"1 s of 2 h that are cut off", func(p *mp4Parts) {
			long(8000, 0, normal)(p)
			p.first, p.media = true, p.media[:len(p.media)-1]
		}, isBroken, "cut off", 0},
		{"1 s of 2 h, of which 1 s is claimed", func(p *mp4Parts) {
			long(8000, 0, normal)(p)
			p.mdhd = mp4Full("mdhd", uint64(0), uint32(8000), uint32(8000), uint32(0))
		}, isBroken, "holds 7200.000 s", 0},
	})
}

func TestMP4Entries(t *testing.T) {
	t.Parallel()
	entry := func(format string, boxes ...any) func(*mp4Parts) {
		return func(p *mp4Parts) { p.stsd = mp4Full("stsd", uint32(1), mp4Entry(format, 1, 16, 8000, boxes...)) }
	}
	checkMP4(t, []mp4Case{
		{"AAC in a QuickTime entry", func(p *mp4Parts) {
			p.stsd = mp4Full("stsd", uint32(1), mp4Box("mp4a", make([]byte, 6), uint16(1), uint16(1), make([]byte, 6), uint16(2), uint16(16), uint32(0), uint32(44100<<16),
				uint32(1024), uint32(0), uint32(0), uint32(2), mp4Box("wave", mp4Box("frma", "mp4a"), mp4Box("mp4a", uint32(0)), esds(0x40, "\x15\x88"), uint64(8))))
		}, "", "", 2.048},
		{"an entry that lies about rate and channels", func(p *mp4Parts) {
			p.stsd = mp4Full("stsd", uint32(1), mp4Entry("mp4a", 9, 8, 0, esds(0x40, "\x15\x88")))
		}, "", "", 2.048},
	})
	for format, words := range map[string]string{
		"enca": "encrypted", "drms": "FairPlay", "sawp": "AMR-WB+", "ima4": "IMA ADPCM", "ms\x00\x02": "Microsoft ADPCM", "QDM2": "QDesign",
		"MAC3": "MACE", "dtsc": "DTS", "mhm1": "MPEG-H", "spex": "Speex", "abcd": `"abcd"`, "\x00\xFF\n\"": "unknown",
	} {
		checkMP4(t, []mp4Case{{format, entry(format), isUnsupported, words, 0}})
	}
	for object, words := range map[byte]string{0xA9: "DTS", 0xE1: "QCELP", 0x20: "0x20", 0: "0x00"} {
		checkMP4(t, []mp4Case{{"object type", entry("mp4a", esds(object, "\x15\x88")), isUnsupported, words, 0}})
	}
	checkMP4(t, []mp4Case{
		{"AAC that is not described", entry("mp4a"), isBroken, "no esds", 0},
		{"AAC with a description that is cut off", entry("mp4a", mp4Full("esds", "\x03\x19\x00\x01\x00\x04")), isBroken, "cut off", 0},
		{"AAC without a setup", entry("mp4a", esds(0x40, "")), isBroken, "no configuration", 0},
		{"xHE-AAC", entry("mp4a", esds(0x40, "\xF9\x48\x40\x00")), isUnsupported, "xHE-AAC", 0},
		{"MPEG audio that is none", entry(".mp3"), isBroken, "MPEG audio", 0},
		{"ALAC without a setup", entry("alac"), isBroken, "no configuration", 0},
		{"ALAC at 0 Hz", entry("alac", mp4Full("alac", uint32(4096), make([]byte, 5), "\x01", make([]byte, 14))), isBroken, "0 Hz", 0},
		{"ALAC of 4 billion frames", entry("alac", mp4Full("alac", uint32(1<<32-1), make([]byte, 20))), isBroken, "packets of", 0},
		{"Opus without a header", entry("Opus"), isBroken, "dOps", 0},
		{"Opus of a later version", entry("Opus", mp4Box("dOps", "\x01\x01", make([]byte, 9))), isUnsupported, "version 1", 0},
		{"Opus without channels", entry("Opus", mp4Box("dOps", make([]byte, 11))), isBroken, "0 channels", 0},
		{"FLAC without a header", entry("fLaC"), isBroken, "dfLa", 0},
		{"FLAC with a header of zeros", entry("fLaC", mp4Full("dfLa", make([]byte, 38))), isBroken, "STREAMINFO", 0},
		{"PCM without a description", entry("ipcm"), isUnsupported, "PCM", 0},
		{"a large entry", entry("mp4a", make([]byte, 70000)), isBroken, "bytes", 0},
	})
}

// Opus packets that overlap could be billions in a small file: each must be looked at.
func TestMP4PacketsThatOverlap(t *testing.T) {
	t.Parallel()
	opus := func(p *mp4Parts) {
		p.stsd = mp4Full("stsd", uint32(1), mp4Entry("Opus", 1, 16, 48000, mp4Box("dOps", "\x00\x01", uint16(0), uint32(48000), uint16(0), "\x00")))
		p.mdhd = mp4Full("mdhd", uint64(0), uint32(48000), uint32(0), uint32(0))
		p.mvhd = nil
		p.media = bytes.Repeat([]byte{0x08}, 16) // packets of 20 ms
	}
	checkMP4(t, []mp4Case{
		{"side by side", func(p *mp4Parts) {
			opus(p)
			p.stsz = mp4Full("stsz", uint32(1), uint32(16))
		}, "", "", 0.32},
		{"one over the other", func(p *mp4Parts) {
			opus(p)
			p.stsz = mp4Full("stsz", uint32(1), uint32(16000))
			p.stco = mp4Full("stco", uint32(1000), bytes.Repeat(put(be, uint32(p.mediaAt())), 1000))
		}, isBroken, "overlap", 0},
	})
}
