package ffmpeg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Task is what a process does: decode the first audio stream of its input.
type Task struct {
	Demuxer  string   // the only one that it may use, and must: "matroska"
	Decoders []string // those that it may use
	Input    []string // further options for its input: "-flags2", "+skip_manual"
	Output   []string // options for its output, among them its format: "-f", "f32le"
	Tell     bool     // it also says what it found, for Process.Await
	// Feed writes the input, in a goroutine of its own. It is to return when its context ends or w fails. An error of its own becomes that of
	// Read; w's errors do not, nor does a panic get further.
	Feed   func(ctx context.Context, w io.Writer) error
	Limits Limits
}

// args is the command line without the program. No part of it comes from a file or a user.
func (t Task) args() []string {
	level := "error"
	if t.Tell {
		level = "info"
	}
	args := []string{
		"-nostdin", "-hide_banner", "-nostats", "-loglevel", level, "-filter_threads", "1",
		"-threads", "1", "-protocol_whitelist", "pipe", "-format_whitelist", t.Demuxer, "-codec_whitelist", strings.Join(t.Decoders, ","),
	}
	args = append(args, t.Input...)
	args = append(args, "-f", t.Demuxer, "-i", "pipe:0", "-map", "0:a:0", "-vn", "-sn", "-dn", "-map_metadata", "-1", "-map_chapters", "-1",
		"-threads", "1")
	args = append(args, t.Output...)
	return append(args, "pipe:1")
}

// Process is a running ffmpeg. One goroutine may use it.
type Process struct {
	cmd    *exec.Cmd
	limits Limits
	stdin  *os.File // the ends of the pipes that are ours
	stdout *os.File
	stderr *os.File
	log    clip

	fed       atomic.Int64 // bytes that were taken
	waiting   atomic.Bool  // whether it is up to the process to go on: input waits to be taken, or has ended
	done      sync.WaitGroup
	exited    chan struct{} // closed once the process was waited for
	silent    chan struct{} // closed once all that it said is in log
	release   func()        // gives back what watches over the process
	closeOnce sync.Once

	mu     sync.Mutex
	cause  error // why it was killed, if it was
	reaped bool  // its number may be another's now
	exit   error // of waiting for it
	failed error // of Feed
}

var (
	errClosed = errors.New("ffmpeg: the process was closed")
	errInput  = errors.New("ffmpeg takes no more input")
)

// Start starts a process. ctx bounds its life; besides, Close must be called.
func (c *Command) Start(ctx context.Context, t Task) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(c.Path, t.args()...), limits: t.Limits.withDefaults(), exited: make(chan struct{}), silent: make(chan struct{})}
	isolate(p.cmd)
	if err := p.launch(); err != nil {
		return nil, fmt.Errorf("start ffmpeg: %w", err)
	}
	feedCtx, cancel := context.WithCancel(ctx)
	unwatch := context.AfterFunc(ctx, func() { p.kill(ctx.Err()) })
	alarm := time.AfterFunc(p.limits.Wall, func() { p.kill(fmt.Errorf("%w: it ran for %v", ErrLimit, p.limits.Wall)) })
	p.release = func() {
		cancel()
		unwatch()
		alarm.Stop()
	}
	p.done.Go(func() {
		_, _ = io.Copy(&p.log, p.stderr) // it ends in one way or another
		close(p.silent)
	})
	p.done.Go(func() {
		p.reap()
		close(p.exited)
		cancel()
		// A child that left the group could hold it open.
		_ = p.stderr.SetReadDeadline(time.Now().Add(time.Second)) // a pipe has deadlines
	})
	p.done.Go(func() {
		err := p.feed(feedCtx, t.Feed)
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			err = nil // that was us, since the process has ended
		}
		p.mu.Lock()
		p.failed = err
		p.mu.Unlock()
		p.waiting.Store(true)
		_ = p.stdin.Close() // what a pipe did not take shows in the result
	})
	return p, nil
}

// launch starts the process with its pipes, and limits it. After an error nothing is left.
func (p *Process) launch() (err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close() // nothing was written by us
		}
		if err != nil {
			for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
				_ = f.Close() // nothing was written by us; nil is an error
			}
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	in, stdin := pipe()
	stdout, out := pipe()
	stderr, complaint := pipe()
	theirs = []*os.File{in, out, complaint}
	p.stdin, p.stdout, p.stderr = stdin, stdout, stderr
	if err != nil {
		return err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, complaint
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if err := limit(p.cmd.Process.Pid, p.limits); err != nil {
		p.kill(err)
		p.reap()
		return err
	}
	return nil
}

// feed runs Feed. Its panic is an error, which here would end the server and not one request.
func (p *Process) feed(ctx context.Context, feed func(context.Context, io.Writer) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("feed ffmpeg: panic: %v\n%s", r, debug.Stack())
		}
	}()
	if err := feed(ctx, (*input)(p)); !errors.Is(err, errInput) {
		return err
	}
	return nil
}

// input is the process as what Feed writes to.
type input Process

func (p *input) Write(b []byte) (int, error) {
	p.waiting.Store(true)
	defer p.waiting.Store(false)
	n, err := p.stdin.Write(b)
	p.fed.Add(int64(n))
	if err != nil {
		return n, fmt.Errorf("%w: %w", errInput, err)
	}
	return n, nil
}

// kill ends the process and its children, unless it has ended.
func (p *Process) kill(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if p.cause == nil {
		p.cause = cause
	}
	killGroup(p.cmd.Process.Pid)
}

// Read gives what the process writes. At the end it returns io.EOF if the process took all its input and found it good, otherwise what went
// wrong: see ErrFailed.
func (p *Process) Read(b []byte) (int, error) {
	// While the process runs, it is looked at now and then. Once it is gone, what it wrote is there; the wait is only for a machine that is busy.
	const tick, last = 250 * time.Millisecond, 2 * time.Second
	patience, gone := min(tick, p.limits.Stall), false
	for fed, idle := p.fed.Load(), time.Now(); ; {
		_ = p.stdout.SetReadDeadline(time.Now().Add(patience)) // a pipe has deadlines
		n, err := p.stdout.Read(b)
		switch {
		case n > 0:
			return n, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, p.verdict()
		case gone: // and yet another process holds the pipe
			return 0, p.verdict()
		}
		select {
		case <-p.exited:
			patience, gone = last, true // it may have written since the last look
			continue
		default:
		}
		if now := p.fed.Load(); now != fed || !p.waiting.Load() {
			fed, idle = now, time.Now() // it reads, or waits for Feed
		}
		if time.Since(idle) >= p.limits.Stall {
			p.kill(fmt.Errorf("%w for %v", ErrStalled, p.limits.Stall))
		}
	}
}

// verdict waits for the end and says what it means.
func (p *Process) verdict() error {
	select {
	case <-p.exited:
	case <-time.After(p.limits.Stall):
		p.kill(fmt.Errorf("%w: it did not end", ErrLimit))
	}
	p.done.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case errors.Is(p.cause, context.Canceled) || errors.Is(p.cause, context.DeadlineExceeded):
		return fmt.Errorf("ffmpeg: %w", p.cause)
	case p.failed != nil:
		return p.failed
	case p.cause != nil:
		return fmt.Errorf("%w%s", p.cause, p.log.suffix())
	case p.exit == nil:
		return io.EOF
	}
	return fmt.Errorf("%w: %w%s", p.class(), p.exit, p.log.suffix())
}

// errKilled is of someone else: the kernel that is out of memory, or an operator. The same input may succeed later.
var errKilled = errors.New("ffmpeg was killed from outside")

// class says what kind of failure the process's end is.
func (p *Process) class() error {
	var exit *exec.ExitError
	if !errors.As(p.exit, &exit) {
		return errors.New("ffmpeg could not be waited for")
	}
	if err := bySignal(exit); err != nil {
		return err
	}
	said := string(p.log.bytes())
	switch {
	case strings.Contains(said, "error while loading shared libraries"):
		return errors.New("ffmpeg could not be loaded")
	case strings.Contains(said, "Cannot allocate memory"):
		return ErrLimit
	case strings.Contains(said, "Unknown input format"),
		strings.Contains(said, "Decoder (codec ") && strings.Contains(said, ") not found"), strings.Contains(said, "no decoder found for"),
		strings.Contains(said, "not on whitelist") && strings.Contains(said, "Error while opening decoder"):
		return ErrNoDecoder
	case strings.Contains(said, "matches no streams"):
		return ErrNoAudio
	}
	return ErrFailed
}

// Await waits until the process has said something in which find finds what is wanted, and returns that; nil if it has not said so
// before its end or within the time. See Task.Tell. It said before its first output what it found.
func (p *Process) Await(find func(said []byte) []byte, within time.Duration) []byte {
	return p.log.await(find, within, p.silent)
}

// Said is what the process has said so far, in one line, for the log.
func (p *Process) Said() string { return strings.TrimPrefix(p.log.suffix(), ": ") }

// Close kills the process if it still runs, and waits for all that belongs to it. It can be called more than once.
func (p *Process) Close() {
	p.closeOnce.Do(func() {
		p.kill(errClosed)
		p.release()
		for _, f := range []*os.File{p.stdin, p.stdout} { // Feed ends by this
			_ = f.Close() // it may be closed, and nobody waits for what it did not take
		}
		p.done.Wait()
		_ = p.stderr.Close() // it was only read
	})
}
