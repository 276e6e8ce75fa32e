// Package cli is the command line of the Aviary binaries: it reads flags, variables and signals, wires the system, and is a client of its
// own HTTP API. Nothing else in the module reads the environment.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/aviary-asr/aviary/api"
)

// Streams is all that a command shares with the world around it.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Lookup   func(string) (string, bool) // of an environment variable
	Environ  func() []string
	Terminal func(any) bool // whether a person watches this stream
	Signals  func(context.Context) (context.Context, context.CancelFunc)
}

// Standard is the process's own streams.
func Standard() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Lookup: os.LookupEnv, Environ: os.Environ,
		Terminal: func(w any) bool { f, ok := w.(*os.File); return ok && term.IsTerminal(int(f.Fd())) },
		Signals:  withSignals}
}

// errSignal is the cause of the context that a signal ended.
type errSignal struct{ signal os.Signal }

func (e errSignal) Error() string { return e.signal.String() }

// signals is what withSignals hangs on its context.
type signals struct {
	patient atomic.Bool   // the second signal is not the last one
	second  chan struct{} // closed by the second one
}

type signalsKey struct{}

// withSignals ends the context on the first SIGINT or SIGTERM. A second one kills the process as usual, but for those who have called awaitSecondSignal: they hear
// of it, and the third one kills.
func withSignals(parent context.Context) (context.Context, context.CancelFunc) {
	s := &signals{second: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, signalsKey{}, s))
	arrived := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(arrived, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case first := <-arrived:
			if !s.patient.Load() {
				signal.Stop(arrived)
			}
			cancel(errSignal{first})
		case <-done:
			return
		}
		select {
		case <-arrived:
			signal.Stop(arrived)
			close(s.second)
		case <-done:
		}
	}()
	return ctx, sync.OnceFunc(func() { signal.Stop(arrived); close(done); cancel(nil) })
}

// awaitSecondSignal keeps a second signal from killing the process: it ends the contexts of stopContext.
func awaitSecondSignal(ctx context.Context) {
	if s, ok := ctx.Value(signalsKey{}).(*signals); ok {
		s.patient.Store(true)
	}
}

// stopContext is for what is still to be done when ctx has ended: it lives for at most so long, and until the second signal.
func stopContext(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	if s, ok := ctx.Value(signalsKey{}).(*signals); ok {
		go func() {
			select {
			case <-s.second:
				cancel()
			case <-stopping.Done():
			}
		}()
	}
	return stopping, cancel
}

// app is what all commands share.
type app struct {
	Streams
	program  Program
	settings Settings

	server, token string
	json          bool
}

// report prints an error once and turns it into the exit code.
func (a *app) report(ctx context.Context, err error) int {
	var bySignal errSignal
	interrupted := errors.As(context.Cause(ctx), &bySignal)
	ours := interrupted && errors.Is(err, context.Canceled) // the user knows what he pressed
	if err != nil && err.Error() != "" && !ours {
		fmt.Fprintf(a.Err, "aviary: %s\n", explain(err))
	}
	if err != nil && interrupted {
		if bySignal.signal == syscall.SIGTERM {
			return exitTerminated
		}
		return exitInterrupted
	}
	return exitCode(err)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "aviary",
		Short: "Batch transcription: thousands of recordings, a few devices, no job lost",
		Long: `Aviary transcribes recordings in batches: an HTTP API queues them, workers run them one at a time per device,
and every job that was accepted ends with a transcript or with the reason why not.`,
		Example: `  aviary demo                                 the whole system in one process, on bundled speech
  aviary serve                                API, queue, store and a CPU worker in one process
  aviary transcribe talk.flac                 submit, wait, print
  aviary bulk recordings/ -o transcripts/     a whole directory; run it again to resume`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	root.PersistentFlags().StringVar(&a.server, "server", "", "URL of the API (default http://127.0.0.1:8080) [AVIARY_SERVER]")
	root.PersistentFlags().StringVar(&a.token, "token", "", "bearer token, where a proxy in front of the API asks for one [AVIARY_TOKEN]")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print results as JSON")
	root.AddCommand(
		a.demoCommand(), a.serveCommand(),
		a.submitCommand(), a.transcribeCommand(), a.bulkCommand(),
		a.statusCommand(), a.listCommand(), a.waitCommand(), a.transcriptCommand(),
		a.cancelCommand(), a.retryCommand(), a.deleteCommand(), a.queueCommand(), a.capacityCommand(),
		a.probeCommand(), a.doctorCommand(), a.migrateCommand(), a.versionCommand(),
	)
	return root
}

// client is the API client that the flags and variables ask for.
func (a *app) client() (*api.Client, error) {
	server, token := a.server, a.token
	if server == "" {
		server, _ = a.Lookup("AVIARY_SERVER")
	}
	if server == "" {
		server = "http://127.0.0.1:8080"
	}
	if token == "" {
		token, _ = a.Lookup("AVIARY_TOKEN")
	}
	c, err := api.NewClient(api.ClientConfig{Server: server, Token: token, UserAgent: "aviary/" + version()})
	if err != nil {
		return nil, usageError(err)
	}
	return c, nil
}

// arguments is a cobra check that reports a usage error.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath()))
		}
		return nil
	}
}
