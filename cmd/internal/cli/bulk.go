package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

// bulkFlags is what `aviary bulk` was asked for.
type bulkFlags struct {
	out              string
	formats          []string
	include, exclude []string
	job              jobFlags
	uploads          int // at once
	inflight         int // jobs at once
	skip             string
	onError          string
	report           string
	dryRun, noWait   bool
}

func (a *app) bulkCommand() *cobra.Command {
	f := bulkFlags{}
	cmd := &cobra.Command{
		Use:   "bulk DIR -o OUT",
		Short: "Transcribe a whole directory; run it again to resume",
		Long: `Bulk submits every recording under DIR, waits, and writes the transcripts to OUT: talk.flac becomes talk.json, or talk.flac.json where
another recording is called talk, too. It takes the files with these extensions, or with --include those that match:
` + strings.Join(audioExtensions, " ") + `

It can be repeated: a file whose transcripts are there, and whose content and options have not changed, is skipped; a job that
was submitted and not fetched is waited for. Ctrl-C stops submitting; the jobs on the server go on. A file that fails does not
stop the others: the exit code is then 3.`,
		Example: `  aviary bulk recordings/ -o transcripts/
  aviary bulk recordings/ -o transcripts/ --format srt,json --include '*.flac' --report report.json
  aviary bulk recordings/ -o transcripts/ --dry-run`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return a.bulk(cmd.Context(), args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.out, "out", "o", "", "directory of the transcripts")
	flags.StringSliceVar(&f.formats, "format", []string{"json"}, "formats to write: json, text, srt, vtt")
	flags.StringArrayVar(&f.include, "include", nil, "only names that match this pattern (repeatable)")
	flags.StringArrayVar(&f.exclude, "exclude", nil, "no names that match this pattern (repeatable)")
	f.job.add(flags, aviary.PriorityBulk)
	flags.IntVar(&f.uploads, "concurrency", 4, "uploads at once")
	flags.IntVar(&f.inflight, "max-inflight", 64, "jobs on the server at once")
	flags.StringVar(&f.skip, "skip", "existing", "existing: leave out what is done; none: transcribe everything again")
	flags.StringVar(&f.onError, "on-error", "continue", "continue, or stop at the first file that fails")
	flags.StringVar(&f.report, "report", "", "write what became of each file to this JSON file")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, and do nothing")
	flags.BoolVar(&f.noWait, "no-wait", false, "submit and leave; run again without it to fetch the transcripts")
	return cmd
}

func (f bulkFlags) check() error {
	switch {
	case f.out == "":
		return usageError(errors.New("-o OUT says where the transcripts go"))
	case f.uploads < 1 || f.inflight < 1:
		return usageError(errors.New("--concurrency and --max-inflight are at least 1"))
	case f.skip != "existing" && f.skip != "none":
		return usageError(fmt.Errorf("--skip %q is neither existing nor none", f.skip))
	case f.onError != "continue" && f.onError != "stop":
		return usageError(fmt.Errorf("--on-error %q is neither continue nor stop", f.onError))
	}
	return checkFormats(f.formats)
}

// bulkResult is what became of one file.
type bulkResult struct {
	File   string   `json:"file"`
	Status string   `json:"status"` // succeeded, submitted, skipped, failed, refused, canceled, pending, interrupted
	Job    string   `json:"job,omitempty"`
	Output []string `json:"output,omitempty"`
	// Warnings are what was said of the recording when it was submitted or waited for.
	Warnings []string        `json:"warnings,omitempty"`
	Error    *aviary.Problem `json:"error,omitempty"`
	err      error
}

func (a *app) bulk(ctx context.Context, dir string, f bulkFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return &exitError{exitNotFound, fmt.Errorf("%s is not a directory that can be read", dir)}
	}
	sources, unread, err := walk(dir, f.include, f.exclude)
	if err != nil {
		return err
	}
	if len(sources)+len(unread) == 0 {
		return &exitError{exitNotFound, fmt.Errorf("no recordings in %s; the known extensions are %s; --include takes others", dir, strings.Join(audioExtensions, " "))}
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	opts, err := f.job.options("")
	if err != nil {
		return err
	}
	b := &bulkRun{app: a, flags: f, client: client, options: opts, stems: outputStems(sources), results: make([]bulkResult, len(sources))}
	for _, err := range unread {
		b.results = append(b.results, bulkResult{Status: "failed", Error: aviary.ProblemOf(err), err: err})
	}
	if b.journal, err = openJournalUnless(f.dryRun, f.out); err != nil {
		return err
	}
	err = b.all(ctx, sources)
	if b.journal.file != nil {
		err = errors.Join(err, b.journal.close())
	}
	return errors.Join(err, b.conclude(ctx))
}

// openJournalUnless opens the journal; a dry run reads it without making anything.
func openJournalUnless(dryRun bool, dir string) (*journal, error) {
	if !dryRun {
		return openJournal(dir)
	}
	return readJournal(dir)
}

// bulkRun is one run of bulk.
type bulkRun struct {
	*app
	flags    bulkFlags
	client   *api.Client
	options  aviary.Options
	stems    map[string]string
	journal  *journal
	progress *progress
	uploads  chan struct{} // a place for each upload

	results []bulkResult // by source
}

// all works through the sources, --max-inflight at a time.
func (b *bulkRun) all(ctx context.Context, sources []source) error {
	b.uploads = make(chan struct{}, b.flags.uploads)
	b.progress = b.newProgress(len(sources))
	defer b.progress.stop()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	next := make(chan int)
	var wg sync.WaitGroup
	for range min(b.flags.inflight, len(sources)) {
		wg.Go(func() {
			for i := range next {
				b.results[i] = b.one(ctx, sources[i])
				if b.flags.onError == "stop" && b.results[i].err != nil {
					stop(errFirstFailure)
				}
			}
		})
	}
	for i, s := range sources {
		b.results[i] = bulkResult{File: s.name, Status: "pending"}
	}
feed:
	for i := range sources {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	return nil
}

var errFirstFailure = errors.New("stopped at the first failure")

// one brings one source to its transcript, or as far as it gets.
func (b *bulkRun) one(ctx context.Context, s source) bulkResult {
	r := bulkResult{File: s.name}
	finish := func(status string, err error) bulkResult {
		r.Status, r.err = status, err
		if err != nil {
			r.Error = aviary.ProblemOf(err)
		}
		b.progress.finish(err == nil)
		return r
	}
	sum, err := hashFile(s.path)
	if err != nil {
		return finish("failed", err)
	}
	entry, known := b.journal.last(s.name)
	known = known && entry.SHA256 == sum && entry.Options == b.fingerprint() && b.flags.skip == "existing"
	if known && entry.Done && b.outputsExist(s) {
		return finish("skipped", nil)
	}
	if b.flags.dryRun {
		return finish("would submit", nil)
	}
	if !known || !b.resumable(ctx, entry) {
		open := known && entry.Job == "" && entry.Server == b.client.Server
		if !open {
			entry = journalEntry{Name: s.name, SHA256: sum, Options: b.fingerprint(), Server: b.client.Server}
		}
		if entry, err = b.submit(ctx, s, entry); err != nil {
			return finish(statusOfError(ctx, err, "refused"), err)
		}
	}
	r.Job = entry.Job
	if b.flags.noWait {
		return finish("submitted", nil)
	}
	job, err := b.follow(ctx, b.client, entry.Job, b.progress)
	if err != nil {
		return finish(statusOfError(ctx, err, "failed"), err)
	}
	r.Warnings = job.Audio.Warnings
	if err := jobFailure(job); err != nil {
		return finish(string(job.Status), err)
	}
	if r.Output, err = b.fetch(ctx, s, job.ID); err != nil {
		return finish(statusOfError(ctx, err, "failed"), err)
	}
	entry.Done = true
	return finish("succeeded", b.journal.record(entry))
}

// statusOfError is interrupted when we were told to stop, otherwise what the caller says.
func statusOfError(ctx context.Context, err error, status string) string {
	var refusal *aviary.Error
	switch {
	case ctx.Err() != nil && !errors.As(err, &refusal):
		return "interrupted"
	case errors.As(err, new(*fs.PathError)):
		return "failed" // a file of ours, not the server's word
	}
	return status
}

// fingerprint is what the transcript depends on besides the audio.
func (b *bulkRun) fingerprint() string {
	print := "attention=" + string(b.options.Attention)
	if b.options.Channel > 0 { // journals of older versions know of no channel
		print += fmt.Sprintf(" channel=%d", b.options.Channel)
	}
	return print
}

// resumable says whether the job of an earlier run can still give the transcript.
func (b *bulkRun) resumable(ctx context.Context, e journalEntry) bool {
	if e.Job == "" || e.Server != b.client.Server {
		return false
	}
	job, err := b.client.Job(ctx, e.Job)
	if err != nil {
		return false
	}
	return !job.Status.Final() || job.Status == aviary.StateSucceeded
}

// submit uploads a source. Its key is in the journal before the upload begins, and its job afterwards, so that neither a lost answer nor the end of this
// process makes a second job of it.
func (b *bulkRun) submit(ctx context.Context, s source, e journalEntry) (journalEntry, error) {
	select {
	case b.uploads <- struct{}{}:
		defer func() { <-b.uploads }()
	case <-ctx.Done():
		return e, ctx.Err()
	}
	opts := b.options
	opts.Name = displayName(s.name)
	resumed := e.Key != ""
	for {
		if e.Key == "" {
			e.Key = newKey()
			if err := b.journal.record(e); err != nil {
				return e, err
			}
		}
		job, err := submitFile(ctx, b.client, s.path, opts, e.Key)
		if code := aviary.CodeOf(err); resumed && (code == aviary.CodeIdempotencyKeyReused || code == aviary.CodeJobExpired) {
			e.Key, resumed = "", false // asked for with other labels now, or deleted since: this is a new request
			continue
		}
		if err != nil {
			return e, err
		}
		e.Job = job.ID
		return e, b.journal.record(e)
	}
}

func (b *bulkRun) outputs(s source) []string {
	list := make([]string, len(b.flags.formats))
	for i, format := range b.flags.formats {
		list[i] = filepath.Join(b.flags.out, filepath.FromSlash(b.stems[s.name])+"."+extension(format))
	}
	return list
}

func (b *bulkRun) outputsExist(s source) bool {
	return !slices.ContainsFunc(b.outputs(s), func(name string) bool {
		_, err := os.Stat(name)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// fetch writes the transcript in every format.
func (b *bulkRun) fetch(ctx context.Context, s source, id string) ([]string, error) {
	outputs := b.outputs(s)
	for i, format := range b.flags.formats {
		content, err := b.client.TranscriptAs(ctx, id, format)
		if err != nil {
			return nil, err
		}
		if err := writeFile(outputs[i], content); err != nil {
			return nil, err
		}
	}
	return outputs, nil
}

// conclude prints the failures and the sum, writes the report, and decides the exit code.
func (b *bulkRun) conclude(ctx context.Context) error {
	counts := map[string]int{}
	failed, hints := 0, map[string]bool{}
	for _, r := range b.results {
		counts[r.Status]++
		for _, w := range r.Warnings {
			fmt.Fprintf(b.Err, "%s: warning: %s\n", displayName(r.File), w)
		}
		if r.err != nil && r.Status != "interrupted" {
			failed++
			what, hint, _ := strings.Cut(explain(r.err), "\n")
			fmt.Fprintf(b.Err, "%s: %s\n", displayName(r.File), what)
			hints[hint] = true
		}
	}
	delete(hints, "")
	for _, hint := range slices.Sorted(maps.Keys(hints)) {
		fmt.Fprintln(b.Err, hint)
	}
	var sum []string
	for _, status := range []string{"succeeded", "submitted", "skipped", "would submit", "failed", "refused", "canceled", "interrupted", "pending"} {
		if counts[status] > 0 {
			sum = append(sum, fmt.Sprintf("%d %s", counts[status], status))
		}
	}
	files := "files"
	if len(b.results) == 1 {
		files = "file"
	}
	fmt.Fprintf(b.Err, "%d %s: %s, in %s\n", len(b.results), files, strings.Join(sum, ", "), time.Since(b.progress.began).Round(time.Second/10))
	if err := b.writeReport(); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(b.Err, "Submitted jobs go on. Run the same command again to resume.")
		return ctx.Err()
	case failed > 0:
		return &exitError{code: exitSomeFailed}
	}
	return nil
}

func (b *bulkRun) writeReport() error {
	if b.json {
		if err := printJSON(b.Out, b.results); err != nil {
			return err
		}
	}
	if b.flags.report == "" {
		return nil
	}
	content, err := json.MarshalIndent(b.results, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(b.flags.report, append(content, '\n'))
}
