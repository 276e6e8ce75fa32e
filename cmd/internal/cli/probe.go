package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe"
)

// probeResult is what became of one file.
type probeResult struct {
	File       string          `json:"file"`
	Container  string          `json:"container,omitempty"`
	Codec      string          `json:"codec,omitempty"`
	SampleRate int             `json:"sample_rate,omitempty"`
	Channels   int             `json:"channels,omitempty"`
	Claimed    *float64        `json:"claimed_seconds,omitempty"` // by the header, where it says
	Seconds    *float64        `json:"true_seconds,omitempty"`    // of what is there, as far as it was counted
	Verdict    string          `json:"verdict"`                   // "accepted" or the code of the refusal
	Warnings   []string        `json:"warnings,omitempty"`
	Error      *aviary.Problem `json:"error,omitempty"`
	why        string          // a file that cannot be read
}

// newProbeResult puts a report and the verdict together.
func newProbeResult(file string, r probe.Report, err error) probeResult {
	out := probeResult{File: file, Container: r.Container, Codec: r.Codec, SampleRate: r.SampleRate, Channels: r.Channels,
		Verdict: "accepted", Warnings: r.Warnings}
	if r.HasClaim {
		out.Claimed = new(r.Claimed.Seconds())
	}
	if r.Duration > 0 {
		out.Seconds = new(r.Duration.Seconds())
	}
	if err != nil {
		out.Error, out.Verdict = aviary.ProblemOf(err), string(aviary.CodeOf(err))
	}
	return out
}

// row is the result as a table shows it.
func (r probeResult) row(t *table) {
	seconds := func(s *float64) string {
		if s == nil {
			return "-"
		}
		return fmt.Sprintf("%.3f", *s)
	}
	why := strings.Join(append(r.Warnings, r.why), " ")
	if r.Error != nil {
		why = r.Error.Detail
	}
	orDash := func(known bool, v any) any {
		if !known {
			return "-"
		}
		return v
	}
	t.add(r.File, orDash(r.Container != "", r.Container), orDash(r.Codec != "", r.Codec), orDash(r.SampleRate > 0, r.SampleRate), orDash(r.Channels > 0, r.Channels),
		seconds(r.Claimed), seconds(r.Seconds), r.Verdict, why)
}

func (a *app) probeCommand() *cobra.Command {
	limit, quick := settingsTable(&a.settings), false
	cmd := &cobra.Command{
		Use:   "probe FILE...",
		Short: "Say what files are, and whether a server would take them; needs no server",
		Long: `Probe looks at files as a server does before it takes them: container, codec, the duration that the header claims and the one that is really
there, and the verdict of a server with the settings of this command (a running server is not asked). It goes by content, never by name, and decodes the whole file, as a server does; --quick only counts. The exit code is 4 if a file would be refused.`,
		Example: "  aviary probe *.wav\n  aviary probe --json talk.m4a | jq '.[0].true_seconds'",
		Args:    arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := applyVariables(cmd.Flags(), limit, a.Lookup); err != nil {
				return err
			}
			return a.probe(cmd.Context(), args, quick)
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "count frames, but decode nothing: damage within them stays unseen")
	for _, s := range limit {
		if s.variable == "PARAKEET_MAX_FILE_DURATION" || s.variable == "AVIARY_FFMPEG" {
			addFlags(cmd.Flags(), []setting{s})
		}
	}
	return cmd
}

func (a *app) probe(ctx context.Context, files []string, quick bool) error {
	found, _, err := findFFmpeg(ctx, a.settings.FFmpeg)
	if err != nil {
		return err
	}
	p := probe.New(probe.Config{MaxDuration: a.settings.MaxDuration, FFmpeg: found})
	t := &table{header: []string{"file", "container", "codec", "rate", "channels", "claimed", "true", "verdict", "why"}}
	results := make([]probeResult, len(files))
	refused, failed := 0, error(nil)
	for i, file := range files {
		report, err := probeFile(ctx, p, file, a.settings, quick)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && aviary.CodeOf(err) == aviary.CodeInternal: // a file that cannot be read says nothing of the others
			failed = err
			results[i] = probeResult{File: file, Verdict: "unreadable", why: err.Error()}
			results[i].row(t)
			continue
		case err != nil:
			refused++
		}
		results[i] = newProbeResult(file, report, err)
		results[i].row(t)
	}
	if err := a.result(results, t); err != nil {
		return err
	}
	if failed != nil {
		return &exitError{code: exitCode(failed)}
	}
	if refused > 0 {
		return &exitError{code: exitRefused}
	}
	return nil
}

// probeFile gives the verdict of a server: that takes decoding the file, unless quick trusts what is counted.
func probeFile(ctx context.Context, p *probe.Prober, name string, s Settings, quick bool) (probe.Report, error) {
	f, err := openRegular(name)
	if err != nil {
		return probe.Report{}, err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return probe.Report{}, err
	}
	report, err := p.Inspect(ctx, f, info.Size())
	if err == nil {
		err = aviary.CheckDuration("probe", report.Duration, s.MaxDuration)
	}
	if err != nil || quick {
		return report, err
	}
	audio, err := p.Normalize(ctx, f, info.Size(), aviary.Normalizing{Limit: s.MaxDuration}, nowhere{})
	if err == nil {
		report.Audio = audio
	}
	return report, err
}

// nowhere is where a recording goes that nobody will hear.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error)            { return len(p), nil }
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

var _ aviary.RecordingWriter = nowhere{}
