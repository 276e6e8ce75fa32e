package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

func (a *app) statusCommand() *cobra.Command {
	var attempts bool
	cmd := &cobra.Command{
		Use:     "status ID...",
		Short:   "Say where jobs are, and why they are there",
		Example: "  aviary status job_01KB...\n  aviary status --attempts job_01KB...",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if attempts {
				return a.attempts(cmd.Context(), args)
			}
			return a.jobs(cmd.Context(), args, func(ctx context.Context, c *api.Client, id string) (api.Job, error) { return c.Job(ctx, id) })
		},
	}
	cmd.Flags().BoolVar(&attempts, "attempts", false, "list each attempt at the jobs: where it ran, and how it ended")
	return cmd
}

// jobAttempts is a job with the tries at it.
type jobAttempts struct {
	Job      string        `json:"job"`
	Attempts []api.Attempt `json:"attempts"`
}

// attempts prints the tries at each job, oldest first, with the reason of each end.
func (a *app) attempts(ctx context.Context, ids []string) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	all, t := []jobAttempts{}, &table{header: []string{"id", "attempt", "outcome", "device", "worker", "started", "seconds", "reason"}}
	err = a.each(ctx, ids, func(ctx context.Context, id string) error {
		list, err := client.Attempts(ctx, id)
		if err != nil {
			return err
		}
		all = append(all, jobAttempts{id, list.Data})
		for _, one := range list.Data {
			outcome, took, reason := string(one.Outcome), "", ""
			if outcome == "" {
				outcome = "running"
			}
			if !one.EndedAt.IsZero() {
				took = fmt.Sprintf("%.1f", one.EndedAt.Sub(one.StartedAt).Seconds())
			}
			if one.Error != nil {
				reason = problemLine(one.Error)
			}
			t.add(id, one.Number, outcome, one.Device, one.Worker, one.StartedAt.Format(time.RFC3339), took, reason)
		}
		return nil
	})
	if len(all) == 0 {
		return err
	}
	return errors.Join(a.result(all, t), err)
}

func problemLine(p *api.Problem) string { return string(p.Code) + ": " + p.Detail }

func (a *app) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID...",
		Short: "Stop jobs; what is done stays done",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.jobs(cmd.Context(), args, func(ctx context.Context, c *api.Client, id string) (api.Job, error) { return c.Cancel(ctx, id) })
		},
	}
}

func (a *app) retryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "retry ID...",
		Short: "Give failed or canceled jobs one more attempt",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.jobs(cmd.Context(), args, func(ctx context.Context, c *api.Client, id string) (api.Job, error) { return c.Retry(ctx, id) })
		},
	}
}

func (a *app) waitCommand() *cobra.Command {
	var until string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait ID...",
		Short: "Wait until jobs end",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if until != "terminal" && until != "succeeded" {
				return usageError(fmt.Errorf("--for %q is neither terminal nor succeeded", until))
			}
			ctx := cmd.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			p := a.newProgress(len(args))
			defer p.stop()
			return a.jobs(ctx, args, func(ctx context.Context, c *api.Client, id string) (api.Job, error) {
				job, err := a.follow(ctx, c, id, p)
				if err == nil && until == "succeeded" {
					err = jobFailure(job)
				}
				p.finish(err == nil && job.Status == aviary.StateSucceeded)
				return job, err
			})
		},
	}
	cmd.Flags().StringVar(&until, "for", "terminal", "terminal: any end will do; succeeded: another end is an error")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after this long, with exit code 6")
	return cmd
}

func (a *app) listCommand() *cobra.Command {
	var q api.ListOptions
	var labels, status []string
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List jobs, newest first",
		Example: "  aviary list --status failed\n  aviary list --label team=radio --all --json | jq -r '.[].id'",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			for _, s := range status {
				state, err := aviary.ParseState(s)
				if err != nil {
					return usageError(fmt.Errorf("--status: %w", err))
				}
				q.Statuses = append(q.Statuses, state)
			}
			if q.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			jobs := []api.Job{}
			for {
				page, err := client.List(cmd.Context(), q)
				if err != nil {
					return err
				}
				jobs = append(jobs, page.Data...)
				if q.Cursor = page.NextCursor; q.Cursor == "" || !all {
					break
				}
			}
			return a.printJobs(jobs)
		},
	}
	cmd.Flags().StringSliceVar(&status, "status", nil, "only jobs in these states")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only jobs with this KEY=VALUE (repeatable)")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "jobs a page, 1 to 200")
	cmd.Flags().BoolVar(&all, "all", false, "all pages")
	return cmd
}

func (a *app) transcriptCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "transcript ID",
		Short: "Print the transcript of a job",
		Args:  arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.transcriptClient(&format)
			if err != nil {
				return err
			}
			content, err := client.TranscriptAs(cmd.Context(), args[0], format)
			if err != nil {
				return err
			}
			_, err = a.Out.Write(content)
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "json, text, srt or vtt")
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "delete ID...",
		Short: "Purge audio and transcript of jobs that have ended",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			return a.each(cmd.Context(), args, func(ctx context.Context, id string) error { return client.Delete(ctx, id, force) })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also jobs that wait or run: they are stopped")
	return cmd
}

func (a *app) queueCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "queue",
		Short: "Say how much work waits and runs",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			q, err := client.Queue(cmd.Context())
			if err != nil {
				return err
			}
			t := &table{header: []string{"jobs queued", "audio s queued", "jobs running", "audio s running", "oldest s", "workers wanted", "expected wait s"}}
			wait := "unknown"
			if q.ExpectedWaitSeconds != nil {
				wait = fmt.Sprintf("%.0f", *q.ExpectedWaitSeconds)
			}
			t.add(q.JobsQueued, q.AudioSecondsQueued, q.JobsRunning, q.AudioSecondsRunning, q.OldestAgeSeconds, q.WorkersWanted, wait)
			return a.result(q, t)
		},
	}
}

func (a *app) capacityCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "capacity",
		Short: "Say what the server takes: its limits, and the formats that it decodes",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			c, err := client.Capacity(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(a.Out, c)
			}
			t := &table{header: []string{"what", "value"}}
			for _, l := range []struct {
				name  string
				value float64
				unit  string
			}{
				{"longest recording", c.Limits.AudioSeconds, "s"}, {"largest upload", float64(c.Limits.UploadBytes), "bytes"},
				{"most jobs waiting", float64(c.Limits.QueueJobs), "jobs"}, {"most audio waiting", c.Limits.QueueAudioSeconds, "s"},
				{"most jobs of one caller", float64(c.Limits.TenantJobs), "jobs"}, {"most audio of one caller", c.Limits.TenantAudioSeconds, "s"},
				{"uploads decoded at once", float64(c.Limits.Decodes), "uploads"},
			} {
				value := "no limit"
				if l.value > 0 {
					value = strconv.FormatFloat(l.value, 'f', -1, 64) + " " + l.unit
				}
				t.add(l.name, value)
			}
			for _, f := range c.Formats {
				t.add(f.Name, decoderOf(f))
			}
			return a.result(c, t)
		},
	}
}

// decoderOf says how a format is decoded.
func decoderOf(f aviary.Format) string {
	if !f.Available {
		return "refused: needs " + f.Decoder
	}
	return f.Decoder
}

// jobs runs f on each id and prints the jobs that it gives, those of failed calls with a final state included.
func (a *app) jobs(ctx context.Context, ids []string, f func(context.Context, *api.Client, string) (api.Job, error)) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	jobs := []api.Job{}
	err = a.each(ctx, ids, func(ctx context.Context, id string) error {
		job, err := f(ctx, client, id)
		if job.ID != "" {
			jobs = append(jobs, job)
		}
		return err
	})
	if len(jobs) > 0 {
		if err := a.printJobs(jobs); err != nil {
			return err
		}
	}
	return err
}

func (a *app) printJobs(jobs []api.Job) error {
	t := &table{header: []string{"id", "status", "attempts", "lost", "progress", "seconds", "attention", "name", "error"}}
	for _, j := range jobs {
		attention, problem := "", ""
		if j.Attention != nil {
			attention = string(j.Attention.Mode)
		}
		if j.Error != nil {
			problem = problemLine(j.Error)
		}
		t.add(j.ID, j.Status, fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts), j.Lost, fmt.Sprintf("%.0f%%", 100*j.Progress.Fraction), j.Audio.DurationSeconds, attention, j.Name, problem)
	}
	return a.result(jobs, t)
}
