package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
)

// roleVariable is beside the settings, since only serve has a role.
const roleVariable = "AVIARY_ROLE"

func (a *app) serveCommand() *cobra.Command {
	table := settingsTable(&a.settings)
	role := string(RoleAll)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the API, the queue and the workers",
		Long: `Serve runs the system until SIGTERM or Ctrl-C, which drains it: the running job may finish, or is given back to the queue.
A second signal ends the draining: jobs are given back at once, and uploads under way are cut off. A third one kills the process.

Role all is everything in one process with one data directory: an embedded Redis, SQLite, files and a worker on the CPU.
Roles api and worker are separate processes that share a Redis (AVIARY_REDIS_URL), a database and the blobs. A data directory belongs to one host:
of its workers one at a time uses a device, and others wait for it.

A worker ends itself with exit code 70 when a call of its device hangs, and with 71 when its device failed or fails its test at the start: run it under
something that starts it again. Its job is not lost. A device that failed or hung with 3 jobs within an hour
is not used for the rest of it.`,
		Example: `  aviary serve
  aviary serve --listen 127.0.0.1:9000 --data-dir ./data
  aviary serve --role api    --redis-url redis://localhost:6379 --data-dir /srv/aviary
  aviary serve --role worker --redis-url redis://localhost:6379 --data-dir /srv/aviary --metrics-listen 127.0.0.1:9091`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := applyVariables(cmd.Flags(), table, a.Lookup); err != nil {
				return err
			}
			if text, ok := a.Lookup(roleVariable); ok && !cmd.Flags().Changed("role") {
				role = text
			}
			r, err := parseRole(role)
			if err != nil {
				return usageError(fmt.Errorf("%s: %w", roleVariable, err))
			}
			log := newLogger(a.Err, a.settings)
			for _, w := range warnings(table, a.Environ()) {
				log.Warn(w)
			}
			return a.serve(cmd.Context(), r, log)
		},
	}
	cmd.Flags().StringVar(&role, "role", role, "all, api or worker ["+roleVariable+"]")
	addFlags(cmd.Flags(), table)
	return cmd
}

// hurry is what is left after the drain timeout for giving jobs back and closing: beyond it the process ends by force, and leases run out.
const hurry = 30 * time.Second

func (a *app) serve(ctx context.Context, role Role, log *slog.Logger) error {
	awaitSecondSignal(ctx)
	system, err := a.program.Start(ctx, role, a.settings, log)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) { // told to stop while it waited for a device, or loaded the model
		log.Info("stopped before it was ready", "cause", context.Cause(ctx))
		return nil
	}
	if err != nil {
		return err
	}
	var failure error
	select {
	case <-ctx.Done():
		log.Info("stopping; signal again to hurry", "cause", context.Cause(ctx), "drain_at_most_s", a.settings.DrainTimeout.Seconds())
	case failure = <-system.Failed():
		log.Error("stopping after a failure", "err", failure)
	}
	stopping, cancel := stopContext(ctx, a.settings.DrainTimeout+hurry)
	defer cancel()
	defer context.AfterFunc(stopping, func() {
		if errors.Is(stopping.Err(), context.Canceled) { // rather than out of time
			log.Warn("hurrying; signal again to kill")
		}
	})()
	if err := system.Stop(stopping); err != nil {
		return errors.Join(failure, fmt.Errorf("stop: %w", err))
	}
	return failure
}

// newLogger writes to w in the format and from the level of the settings.
func newLogger(w io.Writer, s Settings) *slog.Logger {
	options := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
