package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

// jobFlags are the options of a job, as flags.
type jobFlags struct {
	attention string
	channel   string
	priority  string
	labels    []string
}

func (f *jobFlags) add(flags *pflag.FlagSet, priority aviary.Priority) {
	flags.StringVar(&f.attention, "attention", "", "full, local or auto for these jobs; the server's setting otherwise")
	flags.StringVar(&f.channel, "channel", "mix", "transcribe one channel, counted from 1, instead of the mix of all")
	flags.StringVar(&f.priority, "priority", string(priority), "interactive or bulk")
	flags.StringArrayVar(&f.labels, "label", nil, "KEY=VALUE to find the jobs by (repeatable)")
}

func (f *jobFlags) options(name string) (aviary.Options, error) {
	opts := aviary.Options{Name: name}
	var err error
	if f.attention != "" {
		if opts.Attention, err = aviary.ParseAttentionMode(f.attention); err != nil {
			return opts, usageError(fmt.Errorf("--attention: %w", err))
		}
	}
	if opts.Channel, err = aviary.ParseChannel(f.channel); err != nil {
		return opts, usageError(fmt.Errorf("--channel: %w", err))
	}
	if opts.Priority, err = aviary.ParsePriority(f.priority); err != nil {
		return opts, usageError(fmt.Errorf("--priority: %w", err))
	}
	opts.Labels, err = parseLabels(f.labels)
	return opts, err
}

func parseLabels(list []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, usageError(fmt.Errorf("--label %q is not KEY=VALUE", l))
		}
		labels[k] = v
	}
	return labels, nil
}

func (a *app) submitCommand() *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use:     "submit PATH...",
		Short:   "Queue recordings and print their job ids",
		Example: "  aviary submit talk.flac interview.wav\n  id=$(aviary submit talk.flac) && aviary wait $id && aviary transcript $id",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			return a.each(cmd.Context(), args, func(ctx context.Context, file string) error {
				job, err := submitNamed(ctx, client, file, f)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(a.Out, job)
				}
				_, err = fmt.Fprintln(a.Out, job.ID)
				return err
			})
		},
	}
	f.add(cmd.Flags(), aviary.PriorityInteractive)
	return cmd
}

func (a *app) transcribeCommand() *cobra.Command {
	var f jobFlags
	var format string
	cmd := &cobra.Command{
		Use:     "transcribe PATH...",
		Short:   "Submit, wait, and print the transcripts",
		Example: "  aviary transcribe talk.flac\n  aviary transcribe --format srt talk.flac > talk.srt",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.transcriptClient(&format)
			if err != nil {
				return err
			}
			p := a.newProgress(len(args))
			defer p.stop()
			return a.each(cmd.Context(), args, func(ctx context.Context, file string) (err error) {
				defer func() { p.finish(err == nil) }()
				job, err := submitNamed(ctx, client, file, f)
				if err != nil {
					return err
				}
				if job, err = a.follow(ctx, client, job.ID, p); err != nil {
					return err
				}
				if err := jobFailure(job); err != nil {
					return err
				}
				content, err := client.TranscriptAs(ctx, job.ID, format)
				if err != nil {
					return err
				}
				for _, w := range job.Audio.Warnings {
					fmt.Fprintf(a.Err, "%s: warning: %s\n", displayName(file), w)
				}
				if len(args) > 1 {
					fmt.Fprintf(a.Err, "%s:\n", displayName(file))
				}
				_, err = a.Out.Write(content)
				return err
			})
		},
	}
	f.add(cmd.Flags(), aviary.PriorityInteractive)
	cmd.Flags().StringVar(&format, "format", "text", "json, text, srt or vtt")
	return cmd
}

// each runs f on each argument. One that fails does not keep the others from being done: with one argument its error is returned as it is, with
// several each is printed and the exit code says that some failed.
func (a *app) each(ctx context.Context, args []string, f func(context.Context, string) error) error {
	failed := 0
	for _, arg := range args {
		err := f(ctx, arg)
		switch {
		case err == nil:
		case len(args) == 1 || ctx.Err() != nil || errors.Is(err, api.ErrUnreachable):
			return err
		default:
			failed++
			fmt.Fprintf(a.Err, "aviary: %s: %s\n", displayName(arg), explain(err))
		}
	}
	if failed > 0 {
		return &exitError{exitSomeFailed, fmt.Errorf("%d of %d failed", failed, len(args))}
	}
	return nil
}

func submitNamed(ctx context.Context, client *api.Client, file string, f jobFlags) (api.Job, error) {
	opts, err := f.options(displayName(filepath.Base(file)))
	if err != nil {
		return api.Job{}, err
	}
	return submitFile(ctx, client, file, opts, newKey())
}

// newKey names a request that is to be made once, however often it has to be sent.
func newKey() string { return "aviary-" + rand.Text() }

// untilRoom lists the refusals that are over by themselves: the server says when.
var untilRoom = []aviary.Code{aviary.CodeQueueFull, aviary.CodeQuotaExceeded, aviary.CodeDraining, aviary.CodeIdempotencyInProgress}

// submitFile uploads a file, once, whatever happens to the answers: key names the request. While the server is full it waits as long as the server says.
func submitFile(ctx context.Context, client *api.Client, file string, opts aviary.Options, key string) (api.Job, error) {
	for {
		job, err := submitOnce(ctx, client, file, opts, key)
		var e *aviary.Error
		if !errors.As(err, &e) || !slices.Contains(untilRoom, e.Code) {
			return job, err
		}
		select {
		case <-time.After(max(e.Wait, time.Second)):
		case <-ctx.Done():
			return api.Job{}, ctx.Err()
		}
	}
}

func submitOnce(ctx context.Context, client *api.Client, file string, opts aviary.Options, key string) (api.Job, error) {
	f, err := openRegular(file)
	if err != nil {
		return api.Job{}, err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return api.Job{}, err
	}
	return client.Submit(ctx, api.Upload{Body: f, Size: info.Size(), Options: opts, IdempotencyKey: key})
}

// follow waits for the end of a job.
func (a *app) follow(ctx context.Context, client *api.Client, id string, p *progress) (api.Job, error) {
	known := false
	return client.Wait(ctx, id, func(j api.Job) {
		total := seconds(j.Audio.DurationSeconds)
		if !known {
			known = true
			p.audio(total)
		}
		if j.Status.Final() {
			p.ended(id, total)
			return
		}
		p.running(id, seconds(j.Progress.AudioSecondsDone))
	})
}

func seconds(s float64) time.Duration {
	d, _ := aviary.Seconds(s)
	return d
}

// jobFailure is the error that a final job stands for.
func jobFailure(j api.Job) error {
	switch {
	case j.Status == aviary.StateSucceeded:
		return nil
	case j.Error != nil:
		return &exitError{exitJobFailed, &aviary.Error{Code: j.Error.Code, Detail: j.Error.Detail, Hint: j.Error.Hint}}
	}
	return &exitError{exitJobFailed, fmt.Errorf("job %s is %s", j.ID, j.Status)}
}

// transcriptClient is the client for a command that prints transcripts. --json overrides --format.
func (a *app) transcriptClient(format *string) (*api.Client, error) {
	if a.json {
		*format = "json"
	}
	if err := checkFormats([]string{*format}); err != nil {
		return nil, err
	}
	return a.client()
}

// formats of transcripts and the extensions of their files.
var formats = []struct{ name, extension string }{{"json", "json"}, {"text", "txt"}, {"srt", "srt"}, {"vtt", "vtt"}}

func checkFormats(list []string) error {
	for _, f := range list {
		if extension(f) == "" {
			return usageError(fmt.Errorf("--format %q is none of json, text, srt, vtt", f))
		}
	}
	return nil
}

func extension(format string) string {
	i := slices.IndexFunc(formats, func(f struct{ name, extension string }) bool { return f.name == format })
	if i < 0 {
		return ""
	}
	return formats[i].extension
}
