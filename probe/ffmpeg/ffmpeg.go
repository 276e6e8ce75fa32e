// Package ffmpeg runs an installed ffmpeg as a decoder: a process of its own that reads coded audio from a pipe and writes samples to
// another.
//
// The process is taken for one that a hostile file may turn against us. It gets no shell, no environment, no file name and no protocol but
// its pipes; one demuxer and a list of audio decoders; and limits of time, output (its reader stops) and, on Linux, of memory, processor
// time, files and core dumps, which are set before it gets the first byte. It is always waited for, and killed with its children.
// What it says goes into errors for the log and is never meant for users.
//
// The package knows nothing of containers or codecs: what goes in and how the result is to be judged is the caller's. No code of ffmpeg is
// linked.
package ffmpeg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// Command is an installed ffmpeg.
type Command struct {
	Path    string // absolute
	Version string // as it says itself, "5.1.9"
}

// oldestAVCodec is the major version of libavcodec in ffmpeg 4.0. Snapshots have no version of their own, but all print this one.
const oldestAVCodec = 58

// versionTimeout is for a machine that is busy or whose disk is asleep: the answer takes some 50 ms, and the trial twice as much.
const versionTimeout = time.Minute

var (
	versionLine = regexp.MustCompile(`^ffmpeg version (\S+)`)
	avcodecLine = regexp.MustCompile(`(?m)^libavcodec +(\d+)\.`)
)

// Find looks an ffmpeg up by name in PATH, or by its path, asks for its version and lets it decode a little. It refuses what is no ffmpeg, one
// older than 4.0, and one that does not work.
func Find(ctx context.Context, name string) (*Command, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("find ffmpeg: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("find ffmpeg: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-version")
	isolate(cmd)
	cmd.Cancel = func() error { killGroup(cmd.Process.Pid); return nil }
	cmd.WaitDelay = time.Second
	var out, complaint clip
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%s -version: %w%s", path, err, complaint.suffix())
	}
	answer := out.bytes()
	version := versionLine.FindSubmatch(answer)
	if version == nil {
		first, _, _ := bytes.Cut(answer[:min(len(answer), 80)], []byte("\n"))
		return nil, fmt.Errorf("%s is not ffmpeg: it answers -version with %q", path, first)
	}
	library := avcodecLine.FindSubmatch(answer)
	if library == nil {
		return nil, fmt.Errorf("%s does not tell its version of libavcodec", path)
	}
	if major, err := strconv.Atoi(string(library[1])); err != nil || major < oldestAVCodec {
		return nil, fmt.Errorf("%s is ffmpeg %s; 4.0 or later is needed", path, version[1])
	}
	c := &Command{Path: path, Version: string(version[1])}
	if err := c.check(ctx); err != nil {
		return nil, fmt.Errorf("%s %s cannot be used: %w", path, version[1], err)
	}
	return c, nil
}

// check decodes two samples into each format that callers ask for. It finds out whether ffmpeg lives within the limits, and builds that lack what
// every ffmpeg has: later, that would look like the fault of each file.
func (c *Command) check(ctx context.Context) error {
	wav := []byte("RIFF\x28\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x04\x00\x00\x00\x00\x00\x00\x40")
	for _, format := range []struct{ name, codec, half string }{
		{"f32le", "pcm_f32le", "\x00\x00\x00\x00\x00\x00\x00\x3f"}, {"au", "pcm_f32be", "\x00\x00\x00\x00\x3f\x00\x00\x00"},
	} {
		p, err := c.Start(ctx, Task{
			Demuxer: "wav", Decoders: []string{"pcm_s16le"}, Output: []string{"-f", format.name, "-c:a", format.codec},
			Feed: func(_ context.Context, w io.Writer) error { _, err := w.Write(wav); return err },
		})
		if err != nil {
			return err
		}
		got, err := io.ReadAll(io.LimitReader(p, 1<<10))
		p.Close()
		if err != nil {
			return err
		}
		if !bytes.HasSuffix(got, []byte(format.half)) {
			return fmt.Errorf("it decodes to %s wrongly, %x", format.name, got)
		}
	}
	return nil
}

// The ways in which a process fails for what it was fed. Any other error is none of the file: ffmpeg could not be started, was killed from
// outside, or the caller's Feed failed.
var (
	ErrFailed    = errors.New("ffmpeg failed")                                 // it gave up or crashed
	ErrLimit     = errors.New("ffmpeg needed more time or memory than it may") // or wrote a file
	ErrStalled   = fmt.Errorf("%w: nothing happened", ErrLimit)
	ErrNoDecoder = errors.New("this ffmpeg lacks the decoder or the demuxer")
	ErrNoAudio   = errors.New("ffmpeg found no audio stream")
)

// Limits bound a process. A zero field is the default.
type Limits struct {
	MemoryBytes int64         // of address space; Linux only
	CPU         time.Duration // of processor time, in whole seconds; Linux only
	Wall        time.Duration // from start to end
	Stall       time.Duration // that it may keep its reader waiting without taking input either
}

// Debian's ffmpeg 5.1 maps 450 MB before it decodes (most of it shared libraries), and 50 MB are resident. An hour of AAC takes 10 to 20 s.
func (l Limits) withDefaults() Limits {
	if l.MemoryBytes == 0 {
		l.MemoryBytes = 1 << 30
	}
	if l.CPU == 0 {
		l.CPU = 10 * time.Minute
	}
	if l.Wall == 0 {
		l.Wall = 20 * time.Minute
	}
	if l.Stall == 0 {
		l.Stall = 30 * time.Second
	}
	return l
}
