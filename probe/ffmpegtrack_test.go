package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// noFFmpeg is one that is gone.
var noFFmpeg = &ffmpeg.Command{Path: "/no/such/ffmpeg"}

// fakeFFmpeg is a shell script. A process that is started while it is written would hold it open, and "text file busy" follow.
func fakeFFmpeg(t *testing.T, script string) *ffmpeg.Command {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ffmpeg")
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &ffmpeg.Command{Path: path}
}

// directly is what ffmpeg makes of a file by itself.
func directly(t *testing.T, command *ffmpeg.Command, name string) []float32 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command.Path, "-v", "error", "-i", filepath.Join("testdata", name), "-map", "0:a:0", "-f", "f32le", "-c:a", "pcm_f32le", "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	return toFloats(out)
}

func toFloats(b []byte) []float32 {
	p := pcmFormat{kind: pcmFloat, bytes: 4}
	return p.decode(nil, b)
}

// What ffmpeg is fed by us decodes to the samples that it finds in the file by itself, and to as many as were counted.
func TestFFmpegDecodesWhatIsCounted(t *testing.T) {
	t.Parallel()
	p := New(Config{FFmpeg: needFFmpeg(t)})
	for _, c := range goldenWebM {
		if !c.ffmpeg {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := handedFile(t, "golden/"+c.name)
			audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
			if err != nil || audio.Duration != durationOf(c.frames, c.rate) || audio.Codec != c.codec || audio.Container != c.container || audio.SampleRate != c.rate ||
				audio.Channels != c.channels || len(audio.Warnings) > 0 {
				t.Errorf("%+v, %v; want %+v", audio, err, c)
			}
			got, want := decodeWhole(t, p, file), directly(t, p.cfg.FFmpeg, "golden/"+c.name)
			if !slices.Equal(got, want) {
				t.Errorf("%d samples, want %d; they differ by %.1f dB", len(got), len(want), difference(got[:min(len(got), len(want))], want[:min(len(got), len(want))]))
			}
		})
	}
}

// ffmpeg also decodes what is decoded here, so that a decoder of ours can be taken out: then delays and padding are still counted right.
func TestFFmpegInPlaceOfOurDecoders(t *testing.T) {
	t.Parallel()
	p := New(Config{FFmpeg: needFFmpeg(t)})
	for _, c := range goldenWebM {
		if c.ffmpeg || strings.HasPrefix(c.codec, "pcm_") || c.codec == "adpcm_ms" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := handedFile(t, "golden/"+c.name)
			opened, err := p.open(t.Context(), bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			st := opened.(*webmFile).stream
			st.codec.inside = nil
			theirs, err := newCodedTrack(opened.(*webmFile).source, st)
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.close()
			got, err := readAll(t, theirs)
			if err != nil {
				t.Fatal(err)
			}
			ours := decodeWhole(t, p, file)
			if int64(len(got)) != c.frames*int64(c.channels) {
				t.Fatalf("%d samples, want %d", len(got), c.frames)
			}
			if d := difference(ours, got); d > -20 { // at a few samples' offset, it would be 0 dB
				t.Errorf("ours differ by %.1f dB", d)
			}
		})
	}
}

// aacStream is a stream of n packets whose content does not matter, of 1,024 frames at 16 kHz.
func aacStream(n int, end error) stream {
	return stream{codec: codecAAC, rate: 16000, channels: 1, setup: []byte{0x14, 0x08}, claimed: unknown, keep: unknown, packets: func(bool) packetReader {
		return &fixedPackets{n, end}
	}}
}

type fixedPackets struct {
	left int
	end  error
}

func (p *fixedPackets) next(context.Context) (packet, error) {
	if p.left == 0 {
		return packet{}, p.end
	}
	p.left--
	return packet{data: []byte("data"), frames: 1024}, nil
}

func TestFFmpegFailures(t *testing.T) {
	t.Parallel()
	onFire := errors.New("disk on fire")
	output := func(frames int) string { return "cat >/dev/null; head -c " + strconv.Itoa(4*frames) + " /dev/zero" }
	for name, c := range map[string]struct {
		script  string
		packets int
		end     error
		code    aviary.Code
		detail  string
		frames  int
	}{
		"as many as counted":      {output(100 * 1024), 100, io.EOF, "", "", 102400},
		"a hundredth less":        {output(1000*1024 - 10240), 1000, io.EOF, "", "", 1000*1024 - 10240},
		"more than a hundredth":   {output(1000*1024 - 10241), 1000, io.EOF, aviary.CodeAudioBroken, "can be decoded", 0},
		"a quarter of a second":   {output(10240 - 4000), 10, io.EOF, "", "", 10240 - 4000},
		"and more":                {output(10240 - 4001), 10, io.EOF, aviary.CodeAudioBroken, "hold 0.640 s of audio, but 0.390 s", 0},
		"a quarter too much":      {output(10240 + 4000), 10, io.EOF, "", "", 10240 + 4000},
		"more than that":          {output(10240 + 4001), 10, io.EOF, aviary.CodeAudioBroken, "can be decoded", 0},
		"without end":             {"cat >/dev/null; cat /dev/zero", 10, io.EOF, aviary.CodeAudioBroken, "can be decoded", 0},
		"half a frame":            {"cat >/dev/null; head -c 40962 /dev/zero", 10, io.EOF, aviary.CodeInternal, "", 0},
		"nothing":                 {"cat >/dev/null", 10, io.EOF, aviary.CodeAudioBroken, "0.000 s of it", 0},
		"it fails":                {output(10240) + "; echo /srv/secret: no good >&2; exit 1", 10, io.EOF, aviary.CodeAudioBroken, "damaged", 0},
		"it crashes":              {"kill -SEGV $$", 10, io.EOF, aviary.CodeAudioBroken, "damaged", 0},
		"out of memory":           {"echo Cannot allocate memory >&2; exit 1", 10, io.EOF, aviary.CodeAudioBroken, "more time or memory", 0},
		"killed by the system":    {"kill -KILL $$", 10, io.EOF, aviary.CodeInternal, "", 0},
		"no such decoder":         {"echo 'Decoder (codec aac) not found for input stream #0:0' >&2; exit 1", 10, io.EOF, aviary.CodeMediaTypeUnsupported, "ffmpeg of this server", 0},
		"the file is damaged":     {output(10240), 10, broken("The file is damaged."), aviary.CodeAudioBroken, "The file is damaged.", 0},
		"the storage fails":       {output(10240), 10, onFire, aviary.CodeInternal, "disk on fire", 0},
		"it fails, for the input": {"cat >/dev/null; exit 1", 10, onFire, aviary.CodeInternal, "disk on fire", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			samples, err := openFFmpeg(t.Context(), fakeFFmpeg(t, c.script), aacStream(c.packets, c.end))
			if err != nil {
				t.Fatal(err)
			}
			defer samples.close()
			frames, block := 0, make([]float32, 1000)
			for err == nil {
				var n int
				n, err = samples.read(t.Context(), block)
				frames += n
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if aviary.CodeOf(err) != c.code || err == nil && frames != c.frames {
				t.Fatalf("%d frames, %v; want %d, %q", frames, err, c.frames, c.code)
			}
			if err != nil && !strings.Contains(err.Error(), c.detail) {
				t.Errorf("%v, want %q", err, c.detail)
			}
			var e *aviary.Error
			if errors.As(err, &e) && (strings.Contains(e.Detail, "/srv") || !strings.HasSuffix(e.Detail, ".")) {
				t.Errorf("the user reads %q", e.Detail)
			}
			if errors.Is(c.end, onFire) && !errors.Is(err, onFire) {
				t.Errorf("%v has lost its cause", err)
			}
		})
	}
}

// Frames that are not to be heard are cut where they are, and nothing is taken for the end before ffmpeg says that it is.
func TestFFmpegAndTrims(t *testing.T) {
	t.Parallel()
	st := aacStream(10, io.EOF)
	st.trims = true
	for script, want := range map[string]aviary.Code{"cat >/dev/null; head -c 40960 /dev/zero": "", "cat >/dev/null; head -c 40960 /dev/zero; exit 1": aviary.CodeAudioBroken} {
		s, err := newSource(bytes.NewReader([]byte("x")), 1)
		if err != nil {
			t.Fatal(err)
		}
		s.ffmpeg = fakeFFmpeg(t, script)
		track, err := newCodedTrack(s, st)
		if err != nil {
			t.Fatal(err)
		}
		frames, block := 0, make([]float32, 777)
		for err == nil {
			var n int
			n, err = track.read(t.Context(), block)
			frames += n
		}
		track.close()
		if frames != 10240 || errors.Is(err, io.EOF) != (want == "") || want != "" && aviary.CodeOf(err) != want {
			t.Errorf("%s: %d frames, %v", script, frames, err)
		}
	}
}

func TestFFmpegThatIsGone(t *testing.T) {
	t.Parallel()
	p := New(Config{FFmpeg: noFFmpeg})
	for _, name := range []string{"golden/mkv_aac.mkv", "golden/piped_wmav2.wma"} {
		file := handedFile(t, name)
		_, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
		if aviary.CodeOf(err) != aviary.CodeInternal || !aviary.CodeOf(err).Retryable() {
			t.Errorf("%s: %v, want an internal error", name, err)
		}
	}
}

func TestFFmpegIsCanceled(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"golden/mkv_aac.mkv", "golden/piped_wmav2.wma"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		file := handedFile(t, name)
		p := New(Config{FFmpeg: fakeFFmpeg(t, "sleep 1000 & sleep 1000")})
		if _, err := p.Decode(ctx, bytes.NewReader(file), int64(len(file)), 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
