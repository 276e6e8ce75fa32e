package probe

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// Golden files that ffmpeg reads whole (tools/probe-golden/make.sh).
var goldenPiped = []struct {
	name, container, codec string
	rate, channels         int
	frames                 int64
}{
	{"piped_wmav2.wma", "asf", "wmav2", 22050, 1, 5120},
	{"piped_video.wmv", "asf", "wmav1", 22050, 1, 5120},
	{"piped_stereo.wv", "wv", "wavpack", 16000, 2, 4000},
	{"piped_video.avi", "avi", "mp3", 16000, 1, 5184},
	{"piped_aac.flv", "flv", "aac", 44100, 1, 12288},
	{"piped_video.ts", "mpegts", "mp2", 16000, 1, 4608},
	{"piped_ac3.m2ts", "mpegts", "ac3", 48000, 1, 12288},
	{"piped_5p1.eac3", "eac3", "eac3", 48000, 6, 12288},
}

func TestGoldenPiped(t *testing.T) {
	t.Parallel()
	p := New(Config{FFmpeg: needFFmpeg(t), MaxDuration: guard})
	for _, c := range goldenPiped {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := handedFile(t, "golden/"+c.name)
			audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
			if err != nil || (audio.Duration-durationOf(c.frames, c.rate)).Abs() > time.Millisecond || audio.Codec != c.codec || audio.Container != c.container ||
				audio.SampleRate != c.rate || audio.Channels != c.channels {
				t.Errorf("%+v, %v; want %+v", audio, err, c)
			}
			got, want := decodeWhole(t, p, file), directly(t, p.cfg.FFmpeg, "golden/"+c.name)
			if int64(len(got)) != c.frames*int64(c.channels) || !slices.Equal(got, want) {
				t.Errorf("%d samples, ffmpeg by itself gives %d", len(got), len(want))
			}
		})
	}
}

// With a limit, decoding for the sake of counting stops soon behind it.
func TestPipedCountStops(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	p := New(Config{FFmpeg: needFFmpeg(t), MaxDuration: limit})
	file := handedFile(t, "wavpack.wv")
	copy(file[12:], "\xff\xff\xff\xff") // it does not say how long it is
	audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
	if err != nil || audio.Duration <= limit || audio.Duration > limit+durationOf(2*blockFrames, audio.SampleRate) {
		t.Errorf("%v, %v", audio.Duration, err)
	}
	if _, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), limit); aviary.CodeOf(err) != aviary.CodeAudioTooLong {
		t.Errorf("Decode: %v", err)
	}
}

// AMR without speech: 20 ms in each byte, which the wide decoder fills with silence and the narrow one drops.
func amr(head string, frames int, frame string) []byte {
	return []byte(head + strings.Repeat(frame, frames))
}

func TestPipedAnswers(t *testing.T) {
	t.Parallel()
	p := New(Config{FFmpeg: needFFmpeg(t), MaxDuration: guard})
	wma, wv, avi := handedFile(t, "wma.wma"), handedFile(t, "wavpack.wv"), handedFile(t, "golden/piped_video.avi")
	with := func(file []byte, at int, b string) []byte {
		file = bytes.Clone(file)
		copy(file[at:], b)
		return file
	}
	playing := bytes.Index(wma, []byte("\xa1\xdc\xab\x8c")) + 64
	for name, c := range map[string]struct {
		file []byte
		code aviary.Code
		want time.Duration
	}{
		"AMR":                       {amr("#!AMR\n", 50, "\x04"+strings.Repeat("\x00", 12)), "", time.Second},
		"AMR-WB":                    {amr("#!AMR-WB\n", 50, "\x7c"), "", time.Second},
		"AMR-WB of a day":           {amr("#!AMR-WB\n", 24*3600*50, "\x7c"), aviary.CodeAudioTooLong, 24 * time.Hour},
		"AMR that is dropped":       {amr("#!AMR\n", 50, "\x7c"), aviary.CodeAudioBroken, 0},
		"AMR cut off":               {amr("#!AMR\n", 50, "\x04"+strings.Repeat("\x00", 12))[:100], aviary.CodeAudioBroken, 0},
		"AMR of no type":            {amr("#!AMR\n", 50, "\x54"), aviary.CodeAudioBroken, 0},
		"AMR without frames":        {amr("#!AMR\n", 0, ""), aviary.CodeAudioBroken, 0},
		"WMA cut off":               {wma[:len(wma)/2], aviary.CodeAudioBroken, 0},
		"WMA that claims 3 s":       {with(wma, playing, "\x80\xc3\xc9\x01\x01"), aviary.CodeAudioBroken, 0},
		"WMA that claims years":     {with(wma, playing, "\x00\x00\x00\x00\x00\x00\x08\x00"), aviary.CodeAudioTooLong, 0},
		"WMA, header cut off":       {wma[:200], aviary.CodeAudioBroken, 0},
		"WMA, header only":          {wma[:30], aviary.CodeAudioBroken, 0},
		"WavPack cut off":           {wv[:len(wv)/2], aviary.CodeAudioBroken, 0},
		"WavPack that claims less":  {with(wv, 12, "\x00\x10\x00\x00"), aviary.CodeAudioBroken, 0},
		"WavPack that claims hours": {with(wv, 12, "\x00\x00\x00\x40"), aviary.CodeAudioTooLong, 0},
		"AVI cut off":               {avi[:len(avi)-2000], aviary.CodeAudioBroken, 0},
		"AVI without audio":         {handedFile(t, "golden/piped_silent.avi"), aviary.CodeAudioNoStream, 0},
		"AVI of nothing":            {[]byte("RIFF\x04\x00\x00\x00AVI "), aviary.CodeAudioBroken, 0},
		"FLV of nothing":            {[]byte("FLV\x01\x05\x00\x00\x00\x09\x00\x00\x00\x00"), aviary.CodeAudioBroken, 0},
		"TS of nothing":             {[]byte(strings.Repeat("G\x1f\xff\x10"+strings.Repeat("\xff", 184), 30)), aviary.CodeAudioBroken, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			audio, err := p.Probe(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
			if err == nil {
				err = aviary.CheckDuration("test", audio.Duration, guard)
			}
			if aviary.CodeOf(err) != c.code || c.want > 0 && audio.Duration != c.want {
				t.Errorf("%v, %v; want %q, %v", audio.Duration, err, c.code, c.want)
			}
			_, err = p.Decode(t.Context(), bytes.NewReader(c.file), int64(len(c.file)), guard)
			if aviary.CodeOf(err) != c.code {
				t.Errorf("Decode: %v, want %q", err, c.code)
			}
		})
	}
}

// The storage's failures are not the file's, nor is a process that gives something else than it was asked for.
func TestPipedFailures(t *testing.T) {
	t.Parallel()
	onFire := errors.New("disk on fire")
	file := handedFile(t, "mpegts_aac.ts")
	au := `printf '.snd\0\0\0\30\377\377\377\377\0\0\0\6\0\0\76\200\0\0\0\1'; `
	for name, c := range map[string]struct {
		script string
		good   int64
		code   aviary.Code
		want   string
	}{
		"good":                    {au + "head -c 64000 /dev/zero; cat >/dev/null", 1 << 20, "", ""},
		"storage":                 {au + "head -c 64000 /dev/zero; cat >/dev/null", 5000, aviary.CodeInternal, "disk on fire"},
		"storage, early":          {"cat >/dev/null; exit 1", 4096, aviary.CodeInternal, "disk on fire"},
		"no header":               {"cat >/dev/null", 1 << 20, aviary.CodeAudioBroken, "no audio that can be decoded"},
		"half a header":           {"printf .snd; cat >/dev/null", 1 << 20, aviary.CodeInternal, ""},
		"another header":          {"head -c 100 /dev/zero; cat >/dev/null", 1 << 20, aviary.CodeInternal, "AU file"},
		"absurd rate":             {`printf '.snd\0\0\0\30\377\377\377\377\0\0\0\6\377\377\377\377\0\0\0\1'; cat >/dev/null`, 1 << 20, aviary.CodeAudioBroken, "sample rate"},
		"failure behind a header": {au + "cat >/dev/null; exit 1", 1 << 20, aviary.CodeAudioBroken, "damaged"},
		"no decoder":              {"echo 'Decoder (codec opus) not found for input stream' >&2; exit 1", 1 << 20, aviary.CodeMediaTypeUnsupported, "MPEG-TS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(Config{FFmpeg: fakeFFmpeg(t, "echo '  Stream #0:1 -> #0:0 (mp2 (mp2float) -> pcm_f32be (native))' >&2\n"+c.script)})
			r := io.ReaderAt(bytes.NewReader(file))
			if c.good < int64(len(file)) {
				r = failingReader{r, c.good, onFire}
			}
			audio, err := p.Probe(t.Context(), r, int64(len(file)))
			if aviary.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q, %q", err, c.code, c.want)
			}
			if err == nil && (audio.Codec != "mp2" || audio.Duration != time.Second || audio.SampleRate != 16000) {
				t.Errorf("%+v", audio)
			}
		})
	}
}

func TestPipedSniffers(t *testing.T) {
	t.Parallel()
	ts := "G" + strings.Repeat("\x00", 187)
	m2ts := "\x00\x00\x00\x00" + ts
	ac3, eac3 := string(handedFile(t, "ac3.ac3")[:headBytes]), string(handedFile(t, "golden/piped_5p1.eac3")[:headBytes])
	for _, c := range []struct {
		head string
		want string // the format; empty: none of these
	}{
		{strings.Repeat(ts, 30)[:headBytes], "MPEG-TS"}, {strings.Repeat(ts, 3), "MPEG-TS"}, {strings.Repeat(ts, 2), ""}, {strings.Repeat(m2ts, 30)[:headBytes], "MPEG-TS"},
		{strings.Repeat(ts, 10) + "X" + strings.Repeat(ts, 10), ""}, {strings.Repeat("G", 600), "MPEG-TS"},
		{ac3, "AC-3"}, {ac3[:500], ""}, {"\x0b\x77", ""}, {eac3, "Enhanced AC-3"}, {"\x0b\x77" + strings.Repeat("\xff", 3000), ""},
		{"#!AMR\n\x04", "AMR"}, {"#!AMR-WB\n", "AMR"}, {"#!AMR_MC1.0\n", ""}, {"#!AMR", ""},
		{"FLV\x01\x05\x00\x00\x00\x09", "FLV"}, {"FLV\x01\x01\x00\x00\x00\x09", "FLV"}, {"FLV\x01\x02\x00\x00\x00\x09", ""}, {"FLV\x01\x05\x00\x00", ""},
		{"RIFF\x00\x00\x00\x00AVI LIST", "AVI"}, {"RIFF\x00\x00\x00\x00AVI", ""},
		{"wvpk\x14\x88\x00\x00\x10\x04" + strings.Repeat("\x00", 22), "WavPack"}, {"wvpk\x14\x88\x00\x00\x11\x04" + strings.Repeat("\x00", 22), ""}, {"wvpk", ""},
		{asfMagic + strings.Repeat("\x00", 14), "Windows Media"}, {asfMagic, ""}, {webmMagic, "WebM"}, {clusterMagic, "WebM piece"},
	} {
		got := ""
		for _, f := range formats {
			if f.sniff([]byte(c.head)) {
				got = f.name
				break
			}
		}
		if got != c.want {
			t.Errorf("%.20q of %d bytes is taken for %q, want %q", c.head, len(c.head), got, c.want)
		}
	}
}
