package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/asr/wer"
	"github.com/aviary-asr/aviary/models"
)

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Run the whole system on bundled speech, in this process and a temporary directory",
		Long: `Demo starts what serve starts, in one process and a temporary directory: the HTTP API, an embedded Redis, SQLite, a worker on the CPU with
the bundled model. It uploads recordings of people who say digits, none of which the model was trained on, waits for the
transcripts, and compares them with what was said.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context()) },
	}
}

// demoResult is a row of the demo's table.
type demoResult struct {
	File      string  `json:"file"`
	Seconds   float64 `json:"duration_seconds"`
	Attention string  `json:"attention"`
	RTFx      float64 `json:"rtfx"`
	WER       float64 `json:"wer_percent"`
	Text      string  `json:"text"`
}

func (a *app) demo(ctx context.Context) (err error) {
	began := time.Now()
	dir, err := os.MkdirTemp("", "aviary-demo-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	settings := DefaultSettings()
	settings.DataDir, settings.Listen, settings.MetricsListen, settings.LogLevel = dir, "127.0.0.1:0", "", slog.LevelWarn
	system, err := a.program.Start(ctx, RoleAll, settings, newLogger(a.Err, settings))
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), hurry)
		defer cancel()
		err = errors.Join(err, system.Stop(stopping))
	}()
	client, err := api.NewClient(api.ClientConfig{Server: system.URL()})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "Aviary runs at %s: API, queue, store and a CPU worker in this process.\n", system.URL())
	samples, err := models.Samples()
	if err != nil {
		return err
	}
	results, total, err := a.demoRun(ctx, client, samples)
	if err != nil {
		return err
	}
	if err := a.demoTable(results); err != nil {
		return err
	}
	a.demoEnd(total, time.Since(began))
	return nil
}

// demoRun uploads the samples through the API, all at once, and waits for their transcripts.
func (a *app) demoRun(ctx context.Context, client *api.Client, samples []models.Sample) ([]demoResult, wer.Counts, error) {
	p := a.newProgress(len(samples))
	defer p.stop()
	results, errs, total := make([]demoResult, len(samples)), make([]error, len(samples)), wer.Counts{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, s := range samples {
		wg.Go(func() {
			t, err := a.demoOne(ctx, client, s, p)
			p.finish(err == nil)
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.Name, err)
				return
			}
			score := wer.Texts(s.Text, t.Text)
			results[i] = demoResult{s.Name, t.DurationSeconds, string(t.Engine.Attention.Mode), t.Usage.RTFx, score.Percent(), t.Text}
			mu.Lock()
			defer mu.Unlock()
			total.Add(score)
		})
	}
	wg.Wait()
	return results, total, errors.Join(errs...)
}

func (a *app) demoOne(ctx context.Context, client *api.Client, s models.Sample, p *progress) (aviary.Transcript, error) {
	audio, err := fs.ReadFile(models.SampleFiles(), s.Name)
	if err != nil {
		return aviary.Transcript{}, err
	}
	job, err := client.Submit(ctx, api.Upload{Body: bytes.NewReader(audio), Size: int64(len(audio)), Options: aviary.Options{Name: s.Name}})
	if err != nil {
		return aviary.Transcript{}, err
	}
	if job, err = a.follow(ctx, client, job.ID, p); err != nil {
		return aviary.Transcript{}, err
	}
	if err := jobFailure(job); err != nil {
		return aviary.Transcript{}, err
	}
	return client.Transcript(ctx, job.ID)
}

func (a *app) demoTable(results []demoResult) error {
	t := &table{header: []string{"file", "duration", "attention", "rtfx", "wer", "text"}}
	for _, r := range results {
		text := r.Text
		if a.Terminal(a.Out) {
			text = shorten(text, 60)
		}
		t.add(r.File, clock(seconds(r.Seconds)), r.Attention, fmt.Sprintf("%.0f", r.RTFx), fmt.Sprintf("%.1f%%", r.WER), text)
	}
	return a.result(results, t)
}

func (a *app) demoEnd(total wer.Counts, took time.Duration) {
	fmt.Fprintf(a.Err, "\nWord error rate %.2f %% over %d words, %.1f s from start to end.\n", total.Percent(), total.Words, took.Seconds())
	fmt.Fprint(a.Err, `
Next:
  aviary serve                                    the same system, to stay (or: go run ./cmd/aviary serve)
  aviary transcribe FILE                          one recording of yours; the bundled model knows English digits only
  aviary bulk DIR -o OUT --format json,srt        a whole directory
  curl -F file=@FILE http://127.0.0.1:8080/v1/jobs
`)
}

// shorten cuts a text at a word.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:strings.LastIndexByte(s[:most], ' ')] + " ..."
}
