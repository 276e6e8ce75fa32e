package ffmpeg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain is also the ffmpeg of these tests: the test binary runs itself with ffmpeg's arguments, among which a test names what it is to do.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-nostdin" {
		os.Exit(impersonate(os.Args[1:]))
	}
	if r, w, err := os.Pipe(); err == nil { // the runtime opens two files for the first pipe
		r.Close()
		w.Close()
	}
	goroutines, files := runtime.NumGoroutine(), openFiles()
	code := m.Run()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines || openFiles() > files; runtime.Gosched() {
		if time.Now().After(deadline) {
			fmt.Printf("left behind: %d goroutines and %d files more than before\n", runtime.NumGoroutine()-goroutines, openFiles()-files)
			code = max(code, 1)
			break
		}
	}
	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		fmt.Printf("a child is left behind: %d, %v\n", pid, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// openFiles counts them; 0 where the system does not tell.
func openFiles() int {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			return len(entries)
		}
	}
	return 0
}

// impersonate does what the argument behind -do says.
func impersonate(args []string) int {
	what := args[slices.Index(args, "-do")+1]
	if strings.HasPrefix(what, "early ") {
		what = what[len("early "):]
	} else {
		first := make([]byte, 1)
		os.Stdin.Read(first) // the limits stand by now
		os.Stdout.Write(first)
	}
	word, rest, _ := strings.Cut(what, " ")
	switch word {
	case "copy":
		io.Copy(os.Stdout, os.Stdin)
	case "print":
		fmt.Print(strings.Join(args, "\n"), "\n", os.Environ(), "\n")
		dir, _ := os.Getwd()
		fmt.Println(dir, syscall.Getpgrp() == os.Getpid())
	case "complain":
		fmt.Fprint(os.Stderr, rest)
		return 1
	case "flood":
		for b := make([]byte, 64<<10); ; {
			if _, err := os.Stdout.Write(b); err != nil {
				return 0
			}
		}
	case "rant":
		for range 200 {
			os.Stderr.Write(bytes.Repeat([]byte("complaint "), 4000))
		}
		fmt.Fprint(os.Stderr, "the end")
		return 1
	case "shell":
		syscall.Exec("/bin/sh", []string{"sh", "-c", rest}, nil)
		return 99
	}
	return 0
}

// roomy lets a Go program run, also under the race detector: it reserves more addresses than ffmpeg does.
const roomy = 1 << 46

// task is one for impersonate, which is fed x.
func task(do string) Task {
	return Task{Demuxer: "matroska", Decoders: []string{"aac", "opus"}, Output: []string{"-do", do}, Limits: Limits{MemoryBytes: roomy}, Feed: feedBytes([]byte("x"))}
}

func feedBytes(b []byte) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// start starts a task and sees to its end.
func start(t *testing.T, ctx context.Context, task Task) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&Command{Path: self}).Start(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestInputBecomesOutput(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), 100000) // many times what pipes hold
	task := task("copy")
	task.Feed = feedBytes(data)
	p := start(t, t.Context(), task)
	got, err := io.ReadAll(p)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}
	if n, err := p.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %d, %v", n, err)
	}
}

// What a process writes just before it ends is read, however late that is.
func TestLateOutput(t *testing.T) {
	t.Parallel()
	for _, wait := range []string{"0.24", "0.245", "0.25", "0.255", "0.26", "0.3"} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				got, err := io.ReadAll(start(t, t.Context(), task("early shell sleep "+wait+"; echo late")))
				if string(got) != "late\n" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
}

func TestProcessIsIsolated(t *testing.T) {
	t.Parallel()
	task := task("print")
	task.Input = []string{"-flags2", "+skip_manual"}
	got, err := io.ReadAll(start(t, t.Context(), task))
	want := strings.Fields("x-nostdin -hide_banner -nostats -loglevel error -filter_threads 1 -threads 1 -protocol_whitelist pipe -format_whitelist matroska " +
		"-codec_whitelist aac,opus -flags2 +skip_manual -f matroska -i pipe:0 -map 0:a:0 -vn -sn -dn -map_metadata -1 -map_chapters -1 -threads 1 -do print pipe:1 [] / true")
	if err != nil || !slices.Equal(strings.Fields(string(got)), want) {
		t.Errorf("%s, %v", got, err)
	}
}

// script is a program that reads a byte, behind which the limits stand, and then does what it is told to.
func script(t *testing.T, text string) *Command {
	t.Helper()
	return &Command{Path: program(t, "head -c 1 >/dev/null\n"+text)}
}

func TestKernelLimits(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can limit a process that runs")
	}
	const ask = "ulimit -v; ulimit -t; ulimit -f; ulimit -c; ulimit -n"
	for _, c := range []struct {
		limits Limits
		want   string
	}{{Limits{}, "1048576 600 0 0 32"}, {Limits{MemoryBytes: 64 << 20, CPU: 1500 * time.Millisecond}, "65536 2 0 0 32"}} {
		p, err := script(t, ask).Start(t.Context(), Task{Feed: feedBytes([]byte("x")), Limits: c.limits})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(p)
		p.Close()
		if values := strings.Join(strings.Fields(string(got)), " "); err != nil || values != c.want {
			t.Errorf("address space in kB, seconds, file size, core size and files are %q, %v, want %q", values, err, c.want)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can limit a process that runs")
	}
	hungry := script(t, `exec awk 'BEGIN { s = "0123456789"; while (length(s) < 40000000) s = s s; print "all of it" }' 2>/dev/null`)
	for limit, enough := range map[int64]bool{60 << 20: false, 1 << 30: true} {
		p, err := hungry.Start(t.Context(), Task{Feed: feedBytes([]byte("x")), Limits: Limits{MemoryBytes: limit}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(p)
		p.Close()
		if string(got) == "all of it\n" != enough || (err == nil) != enough {
			t.Errorf("within %d bytes: %q, %v", limit, got, err)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	external, feeding := errors.New("killed from outside"), errors.New("disk on fire")
	for name, c := range map[string]struct {
		do     string
		change func(*Task)
		want   error  // external: none of the kinds
		cause  string // what the error's text holds
	}{
		"exit status":         {do: "complain it is\nbroken", want: ErrFailed, cause: "exit status 1: it is | broken"},
		"much to say":         {do: "rant", want: ErrFailed, cause: "the end"},
		"crash":               {do: "shell kill -SEGV $$", want: ErrFailed, cause: "segmentation fault"},
		"CPU limit":           {do: "shell kill -XCPU $$", want: ErrLimit},
		"out of memory":       {do: "shell kill -KILL $$", want: external, cause: "from outside"},
		"operator":            {do: "shell kill -TERM $$", want: external},
		"no decoder":          {do: "complain [0] Decoder (codec alac) not found for input stream #0:0", want: ErrNoDecoder},
		"decoder not allowed": {do: "complain Codec (tak) not on whitelist 'aac' | Error while opening decoder for input stream #0:0", want: ErrNoDecoder},
		"video not allowed":   {do: "complain Codec (h264) not on whitelist 'aac'", want: ErrFailed},
		"no decoder, later":   {do: "complain [aist#0:0/tta] Decoding requested, but no decoder found for: tta", want: ErrNoDecoder},
		"no demuxer":          {do: "complain Unknown input format: 'asf'", want: ErrNoDecoder},
		"no audio":            {do: "complain Stream map '0:a:0' matches no streams.", want: ErrNoAudio},
		"not installed":       {do: "complain ffmpeg: error while loading shared libraries: libx.so", want: external},
		"early and no good":   {do: "early complain no", want: ErrFailed},
		"feeder":              {do: "copy", change: func(t *Task) { t.Feed = func(context.Context, io.Writer) error { return feeding } }, want: feeding},
		"feeder, late": {do: "copy", change: func(t *Task) {
			t.Feed = func(_ context.Context, w io.Writer) error {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
				return fmt.Errorf("read: %w", feeding)
			}
		}, want: feeding},
		"feeder panics": {do: "copy", change: func(t *Task) { t.Feed = func(context.Context, io.Writer) error { panic("oops") } }, want: external, cause: "oops"},
		"hanging":       {do: "shell sleep 1000", change: func(t *Task) { t.Limits.Stall = 50 * time.Millisecond }, want: ErrLimit, cause: "nothing happened"},
		"hanging with its input": {do: "shell sleep 1000", change: func(t *Task) {
			t.Limits.Stall = 50 * time.Millisecond
			t.Feed = feedBytes(make([]byte, 1<<20))
		}, want: ErrLimit, cause: "nothing happened"},
		"hanging behind its output":    {do: "shell exec >&-; sleep 1000", change: func(t *Task) { t.Limits.Stall = 400 * time.Millisecond }, want: ErrLimit, cause: "did not end"},
		"slow":                         {do: "shell while :; do echo x; sleep 0.01; done", change: func(t *Task) { t.Limits.Wall = 200 * time.Millisecond }, want: ErrLimit, cause: "it ran for 200ms"},
		"deaf to signals":              {do: "shell trap '' TERM INT HUP; sleep 1000", change: func(t *Task) { t.Limits.Wall = 100 * time.Millisecond }, want: ErrLimit},
		"a child holds the pipes":      {do: "shell sleep 1000 & exit 1", want: ErrFailed},
		"a child left with the pipes":  {do: "shell setsid sleep 3 & sleep 0.1; exit 1", want: ErrFailed},
		"a child holds them, all fine": {do: "shell sleep 1000 & exit 0", want: io.EOF},
		"a child ignores signals":      {do: "shell (trap '' TERM; sleep 1000) & exit 1", want: ErrFailed},
		"does not read, all is fine":   {do: "early shell exit 0", change: func(t *Task) { t.Feed = feedBytes(make([]byte, 1<<20)) }, want: io.EOF},
		"does not read, feeder waits": {do: "early shell exit 0", change: func(t *Task) {
			t.Feed = func(ctx context.Context, _ io.Writer) error { <-ctx.Done(); return ctx.Err() }
		}, want: io.EOF},
		"closes its input, feeder goes": {do: "early shell exec <&-; echo x; sleep 0.1; exit 1", change: func(t *Task) { t.Feed = feedBytes(make([]byte, 1<<20)) }, want: ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := task(c.do)
			if c.change != nil {
				c.change(&task)
			}
			p := start(t, t.Context(), task)
			var err error
			for buf := make([]byte, 100); err == nil; {
				_, err = p.Read(buf)
			}
			for _, kind := range []error{io.EOF, ErrFailed, ErrLimit, ErrNoDecoder, ErrNoAudio, feeding, context.Canceled} {
				if is := errors.Is(err, kind); is != errors.Is(c.want, kind) {
					t.Errorf("%v; is %v: %v", err, kind, is)
				}
			}
			if !strings.Contains(err.Error(), c.cause) || len(err.Error()) > 3*clipBytes {
				t.Errorf("%.300v, want %q in it", err, c.cause)
			}
		})
	}
}

// A process that floods its output waits until its reader is ready, and dies with it.
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"flood", "copy", "shell sleep 1000 & sleep 1000", "shell trap '' TERM; (trap '' TERM; sleep 1000) & sleep 1000", "rant"} {
		task := task(do)
		task.Feed = func(ctx context.Context, w io.Writer) error {
			for {
				if _, err := w.Write(make([]byte, 1000)); err != nil {
					return err
				}
			}
		}
		p := start(t, t.Context(), task)
		if _, err := p.Read(make([]byte, 1)); err != nil {
			t.Errorf("%s: %v", do, err)
		}
		p.Close()
		checkGone(t, p)
		if n, err := p.Read(make([]byte, 1)); n != 0 || !errors.Is(err, errClosed) {
			t.Errorf("%s: reading behind Close: %d, %v", do, n, err)
		}
		p.Close()
	}
}

// checkGone waits for the end of all of a group: its orphans are killed, but others have to wait for them.
func checkGone(t *testing.T, p *Process) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !errors.Is(syscall.Kill(-p.cmd.Process.Pid, 0), syscall.ESRCH); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%v: its group lives", p.cmd.Args)
			return
		}
	}
}

func TestContextEndsEverything(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"flood", "shell cat; sleep 1000", "shell sleep 1000 & sleep 1000"} {
		for name, feed := range map[string]func(context.Context, io.Writer) error{
			"waits":   func(ctx context.Context, w io.Writer) error { w.Write([]byte("x")); <-ctx.Done(); return ctx.Err() },
			"returns": feedBytes([]byte("xyz")),
		} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			task := task(do)
			task.Feed = feed
			p := start(t, ctx, task)
			if _, err := p.Read(make([]byte, 1)); err != nil {
				t.Errorf("%s, feeder %s: %v", do, name, err)
			}
			cancel()
			var err error
			for buf := make([]byte, 64<<10); err == nil; {
				_, err = p.Read(buf)
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s, feeder %s: %v", do, name, err)
			}
			checkGone(t, p)
			p.Close()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Command{Path: "/"}).Start(ctx, task("copy")); !errors.Is(err, context.Canceled) {
		t.Errorf("started by a context that has ended: %v", err)
	}
}

func TestStartFailures(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/no/such/ffmpeg", "/", t.TempDir()} {
		p, err := (&Command{Path: path}).Start(t.Context(), task("copy"))
		if err == nil || p != nil || errors.Is(err, ErrFailed) || !strings.HasPrefix(err.Error(), "start ffmpeg: ") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAwait(t *testing.T) {
	t.Parallel()
	word := func(w string) func([]byte) []byte {
		return func(said []byte) []byte {
			if bytes.Contains(said, []byte(w)) {
				return []byte(w)
			}
			return nil
		}
	}
	tells := task("shell sleep 0.05; echo some >&2; sleep 0.05; echo thing >&2; sleep 1000")
	tells.Tell = true
	p := start(t, t.Context(), tells)
	if got := p.Await(word("thing"), time.Minute); string(got) != "thing" {
		t.Errorf("%q", got)
	}
	if got := p.Await(word("nothing"), 20*time.Millisecond); got != nil {
		t.Errorf("%q", got)
	}
	p = start(t, t.Context(), task("complain of it"))
	if got := p.Await(word("nothing"), time.Minute); got != nil {
		t.Errorf("%q", got)
	}
	for range 20 {
		p := start(t, t.Context(), task("early complain the last word"))
		<-p.exited
		if got := p.Await(word("last word"), time.Minute); got == nil {
			t.Error("what it said before it ended is lost")
		}
	}
}
