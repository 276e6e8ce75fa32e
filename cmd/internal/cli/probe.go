package cli

import (
	"context"
	"fmt"
	"os"

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
	Seconds    float64         `json:"duration_seconds,omitempty"`
	Verdict    string          `json:"verdict"` // "accepted" or the code of the refusal
	Error      *aviary.Problem `json:"error,omitempty"`
}

func (a *app) probeCommand() *cobra.Command {
	limit := settingsTable(&a.settings)
	cmd := &cobra.Command{
		Use:   "probe FILE...",
		Short: "Say what files are, and whether the server would take them; needs no server",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := applyVariables(cmd.Flags(), limit, a.Lookup); err != nil {
				return err
			}
			return a.probe(cmd.Context(), args)
		},
	}
	for _, s := range limit {
		if s.variable == "PARAKEET_MAX_FILE_DURATION" {
			addFlags(cmd.Flags(), []setting{s})
		}
	}
	return cmd
}

func (a *app) probe(ctx context.Context, files []string) error {
	p := probe.New(probe.Config{MaxDuration: a.settings.MaxDuration})
	t := &table{header: []string{"file", "container", "codec", "rate", "channels", "seconds", "verdict", "why"}}
	results := make([]probeResult, len(files))
	refused := 0
	for i, file := range files {
		audio, err := probeFile(ctx, p, file, a.settings)
		if err != nil && aviary.CodeOf(err) == aviary.CodeInternal {
			return err
		}
		r := probeResult{File: file, Container: audio.Container, Codec: audio.Codec, SampleRate: audio.SampleRate,
			Channels: audio.Channels, Seconds: audio.Duration.Seconds(), Verdict: "accepted"}
		why := ""
		if err != nil {
			refused++
			r.Error, r.Verdict = aviary.ProblemOf(err), string(aviary.CodeOf(err))
			why = r.Error.Detail
		}
		results[i] = r
		t.add(r.File, r.Container, r.Codec, r.SampleRate, r.Channels, fmt.Sprintf("%.3f", r.Seconds), r.Verdict, why)
	}
	if err := a.result(results, t); err != nil {
		return err
	}
	if refused > 0 {
		return &exitError{code: exitRefused}
	}
	return nil
}

func probeFile(ctx context.Context, p *probe.Prober, name string, s Settings) (aviary.Audio, error) {
	f, err := os.Open(name)
	if err != nil {
		return aviary.Audio{}, err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return aviary.Audio{}, err
	}
	if !info.Mode().IsRegular() {
		return aviary.Audio{}, usageError(fmt.Errorf("%s is not a file", name))
	}
	audio, err := p.Probe(ctx, f, info.Size())
	if err != nil {
		return audio, err
	}
	return audio, aviary.CheckDuration("probe", audio.Duration, s.MaxDuration)
}
