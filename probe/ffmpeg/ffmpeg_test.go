package ffmpeg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// program makes an executable of a shell script. A process that is started meanwhile would hold it open, and "text file busy" follow.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ffmpeg")
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindRefusesWhatIsNoFFmpeg(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, want string }{
		"missing":            {"no-such-program-here", "not found"},
		"a folder":           {t.TempDir(), "permission denied|is a directory"},
		"another program":    {program(t, "echo sox 14.4"), `is not ffmpeg: it answers -version with "sox 14.4"`},
		"ffprobe":            {program(t, "echo ffprobe version 5.1"), "is not ffmpeg"},
		"silent":             {program(t, ""), "is not ffmpeg"},
		"failing":            {program(t, "echo oh no >&2; exit 3"), "exit status 3: oh no"},
		"too old":            {program(t, "echo ffmpeg version 3.4.8; echo 'libavcodec     57.107.100 / 57.107.100'"), "is ffmpeg 3.4.8; 4.0 or later is needed"},
		"without a library":  {program(t, "echo ffmpeg version 6.0"), "libavcodec"},
		"absurd":             {program(t, "echo ffmpeg version 6.0; echo 'libavcodec 99999999999999999999.1'"), "is needed"},
		"flooding":           {program(t, "yes ffmpeg | head -c 5000000"), "is not ffmpeg"},
		"with an empty path": {"", "not found|no such file"},
	} {
		command, err := Find(t.Context(), c.path)
		if err == nil {
			t.Errorf("%s: found %+v", name, command)
			continue
		}
		fine := false
		for _, want := range strings.Split(c.want, "|") {
			fine = fine || strings.Contains(err.Error(), want)
		}
		if !fine {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// answers is a shell script that does what Find asks of an ffmpeg.
func answers(version, library, f32le, au string) string {
	return "test -z \"$HOME$GOPATH$USER\" || exit 1\ntest \"$(pwd)\" = / || exit 2\ncase \"$*\" in\n-version) echo 'ffmpeg version " + version + " Copyright (c)'\n" +
		"echo 'built with gcc'\necho 'libavutil      56. 24.101 / 56. 24.101'\necho 'libavcodec     " + library + "';;\n" +
		"*f32le*) " + f32le + ";;\n*au*) " + au + ";;\nesac"
}

const (
	goodF32LE = `printf '\0\0\0\0\0\0\0\77'`
	goodAU    = `printf '.snd and more \0\0\0\0\77\0\0\0'`
)

func TestFindTakesReleasesAndSnapshots(t *testing.T) {
	t.Parallel()
	for version, library := range map[string]string{"5.1.9-0+deb12u1": "59. 37.100 / 59. 37.100", "n7.1": "61. 19.100 / 61. 19.100", "N-47683-g0e8eb07980": "58. 42.102 / 58. 42.102"} {
		path := program(t, answers(version, library, goodF32LE, goodAU))
		if c, err := Find(t.Context(), path); err != nil || *c != (Command{path, version}) {
			t.Errorf("%s: %+v, %v", version, c, err)
		}
	}
}

func TestFindTriesWhatItFinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ f32le, au, want string }{
		"no such encoder":  {"echo Unknown encoder pcm_f32le >&2; exit 1", goodAU, "Unknown encoder"},
		"no such muxer":    {goodF32LE, "echo Requested output format au is not known >&2; exit 1", "Requested output format"},
		"wrong samples":    {goodF32LE, "printf 'something else'", "wrongly"},
		"nothing":          {"", goodAU, "wrongly"},
		"more than enough": {"yes", goodAU, "cannot be used"},
	} {
		path := program(t, answers("5.1", "59. 37.100 / 59. 37.100", c.f32le, c.au))
		if command, err := Find(t.Context(), path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want %q", name, command, err, c.want)
		}
	}
}

func TestFindEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := program(t, "sleep 1000 & sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Find(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
}

func TestClipKeepsBothEnds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 2000)
	for name, writes := range map[string][]string{
		"short": {"abc", "def"}, "one long": {long}, "many": strings.SplitAfter(long, "9"), "exactly both": {long[:2*clipBytes]},
		"the head and more": {long[:clipBytes], long[clipBytes : clipBytes+100]}, "long, then short": {long, "x"},
	} {
		var c clip
		for _, w := range writes {
			if n, err := c.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		all, want := strings.Join(writes, ""), strings.Join(writes, "")
		if len(all) > 2*clipBytes {
			want = all[:clipBytes] + "\n[...]\n" + all[len(all)-clipBytes:]
		}
		if got := string(c.bytes()); got != want {
			t.Errorf("%s: %d bytes kept: %.20q ... %.20q", name, len(got), got, got[max(len(got)-20, 0):])
		}
	}
	var c clip
	c.Write([]byte("\na\x1b[31m\r\nb\xff\n"))
	if got := c.suffix(); got != ": a | [31m | b?" {
		t.Errorf("suffix is %q", got)
	}
}
