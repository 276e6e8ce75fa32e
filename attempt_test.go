package aviary_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
)

// ledger is an Attempting that holds one job and scripts what the store answers.
type ledger struct {
	mu        sync.Mutex
	job       aviary.Job
	readErr   error
	startErr  error
	beatErr   error // answer to heartbeats
	cancel    bool  // heartbeats ask to stop
	writeErrs []error
	beats     []aviary.Beat
	ends      []string
	failure   aviary.Failure
	became    aviary.State // what FailAttempt answers; by default what was asked for
	got       aviary.Transcript
	claims    []aviary.Claim
}

func (l *ledger) Job(_ context.Context, id string) (aviary.Job, error) {
	job := l.job
	job.ID, job.State = id, aviary.StateQueued
	return job, l.readErr
}

func (l *ledger) TakeOver(context.Context, aviary.Claim) ([]aviary.Reaped, error) {
	panic("not a runner's")
}

func (l *ledger) StartAttempt(_ context.Context, t aviary.Ticket, c aviary.Claim) (aviary.Job, error) {
	if l.startErr != nil {
		return aviary.Job{}, l.startErr
	}
	l.job.ID, l.job.State, l.job.Worker, l.job.Device = t.JobID, aviary.StateRunning, c.Worker, c.Device
	l.job.Attempt++
	l.claims = append(l.claims, c)
	return l.job, nil
}

func (l *ledger) Heartbeat(_ context.Context, _ aviary.AttemptRef, b aviary.Beat) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beats = append(l.beats, b)
	return l.cancel, l.beatErr
}

// end records how the attempt ended, unless the script says that the store fails this time.
func (l *ledger) end(how string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.writeErrs) > 0 {
		err := l.writeErrs[0]
		l.writeErrs = l.writeErrs[1:]
		if err != nil {
			return err
		}
	}
	l.ends = append(l.ends, how)
	return nil
}

func (l *ledger) FinishAttempt(_ context.Context, _ aviary.AttemptRef, t aviary.Transcript) error {
	l.got = t
	return l.end("finished")
}
func (l *ledger) FailAttempt(_ context.Context, _ aviary.AttemptRef, f aviary.Failure) (aviary.State, error) {
	l.failure = f
	err := l.end("failed")
	switch {
	case err != nil:
		return "", err
	case l.became != "":
		return l.became, nil
	case f.Retry:
		return aviary.StateQueued, nil
	}
	return aviary.StateFailed, nil
}
func (l *ledger) ReleaseAttempt(context.Context, aviary.AttemptRef) error { return l.end("released") }
func (l *ledger) CancelAttempt(context.Context, aviary.AttemptRef) error  { return l.end("canceled") }

// device is an aviary.Device whose work is a function.
type device func(ctx context.Context, progress func(time.Duration)) (aviary.Transcript, error)

func (d device) Name() string { return "cpu" }
func (d device) Transcribe(ctx context.Context, _ aviary.PCM, _ aviary.AttentionMode, progress func(time.Duration)) (aviary.Transcript, error) {
	return d(ctx, progress)
}

// says is a device that answers at once.
func says(text string) device {
	return func(context.Context, func(time.Duration)) (aviary.Transcript, error) {
		return aviary.Transcript{Text: text}, nil
	}
}

// fails is a device that answers with an error.
func fails(err error) device {
	return func(context.Context, func(time.Duration)) (aviary.Transcript, error) { return aviary.Transcript{}, err }
}

// waits is a device that works until its context ends.
func waits(ctx context.Context, _ func(time.Duration)) (aviary.Transcript, error) {
	<-ctx.Done()
	return aviary.Transcript{}, ctx.Err()
}

func newRunner(l *ledger) (*aviary.Runner, *witness) {
	w := &witness{}
	return &aviary.Runner{Store: l, Blobs: &shelf{blobs: map[string][]byte{"": {1}}}, Prober: hearing{}, Observer: w,
		Log: slog.New(slog.DiscardHandler), Worker: "w1", Lease: 45 * time.Second, Beat: 10 * time.Second, MaxDuration: time.Hour}, w
}

var ticket = aviary.Ticket{JobID: "job_1", Generation: 1}

func TestRunEndsAnAttempt(t *testing.T) {
	store := errors.New("the store is away")
	tests := []struct {
		name      string
		ledger    *ledger
		device    device
		wantEnds  []string
		wantCode  aviary.Code
		wantRetry bool
	}{
		{"success", &ledger{}, says("hi"), []string{"finished"}, "", false},
		{"success after the store was away", &ledger{writeErrs: []error{store, store, nil}}, says("hi"), []string{"finished"}, "", false},
		{"a stale result is dropped", &ledger{writeErrs: []error{aviary.ErrStale}}, says("hi"), nil, "", false},
		{"a result that cannot be stored fails the attempt", &ledger{writeErrs: []error{aviary.Errorf(aviary.CodeEngineFailed, "store", "no JSON"), nil}}, says("hi"),
			[]string{"failed"}, aviary.CodeEngineFailed, true},
		{"a bad file fails at once", &ledger{}, fails(aviary.Errorf(aviary.CodeAudioBroken, "probe", "bad")), []string{"failed"}, aviary.CodeAudioBroken, false},
		{"an unknown error is tried again and shows nothing", &ledger{}, fails(errors.New("secret")), []string{"failed"}, aviary.CodeInternal, true},
		{"a panic is the engine's failure", &ledger{}, func(context.Context, func(time.Duration)) (aviary.Transcript, error) { panic("boom") },
			[]string{"failed"}, aviary.CodeEngineFailed, true},
		{"cancel", &ledger{cancel: true}, waits, []string{"canceled"}, "", false},
		{"fenced off while running", &ledger{beatErr: aviary.ErrStale}, waits, nil, "", false},
		{"an old ticket", &ledger{startErr: aviary.ErrNotClaimable}, waits, nil, "", false},
		{"a deleted job", &ledger{startErr: aviary.Errorf(aviary.CodeNotFound, "store", "gone")}, waits, nil, "", false},
		{"a job that is no more", &ledger{readErr: aviary.Errorf(aviary.CodeNotFound, "store", "gone")}, waits, nil, "", false},
		{"deleted while running", &ledger{beatErr: aviary.Errorf(aviary.CodeNotFound, "store", "gone")}, waits, nil, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := tt.ledger
				r, _ := newRunner(l)
				if err := r.Run(t.Context(), ticket, tt.device); err != nil {
					t.Fatalf("Run: %v", err)
				}
				if !slices.Equal(l.ends, tt.wantEnds) {
					t.Errorf("the attempt ended %q, want %q", l.ends, tt.wantEnds)
				}
				if tt.wantCode == "" {
					return
				}
				if p := l.failure.Problem; p.Code != tt.wantCode || l.failure.Retry != tt.wantRetry || p.Detail == "secret" {
					t.Errorf("failure is %+v (%+v), want code %s, retry %v", l.failure, p, tt.wantCode, tt.wantRetry)
				}
			})
		})
	}
}

func TestRunReportsAStoreThatIsAwayBeforeTheClaim(t *testing.T) {
	want := errors.New("away")
	for _, l := range []*ledger{{startErr: want}, {readErr: want}} {
		r, _ := newRunner(l)
		if err := r.Run(t.Context(), ticket, says("")); !errors.Is(err, want) || errors.Is(err, aviary.ErrDeviceLost) {
			t.Errorf("got %v: the queue must hear of it, to try the ticket again", err)
		}
	}
}

func TestRunReleasesOnDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		r, w := newRunner(l)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			synctest.Wait()
			cancel(aviary.ErrDrain)
		}()
		if err := r.Run(ctx, ticket, device(waits)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(l.ends, []string{"released"}) || w.ends[0].Outcome != aviary.OutcomeReleased {
			t.Errorf("ended %q (%+v), want released", l.ends, w.ends)
		}
	})
}

func TestRunKeepsAResultThatIsReadyWhenTheDrainComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{}
		r, _ := newRunner(l)
		ctx, cancel := context.WithCancelCause(t.Context())
		err := r.Run(ctx, ticket, device(func(context.Context, func(time.Duration)) (aviary.Transcript, error) {
			cancel(aviary.ErrDrain)
			return aviary.Transcript{Text: "done"}, nil
		}))
		if err != nil || !slices.Equal(l.ends, []string{"finished"}) || l.got.Text != "done" {
			t.Errorf("ended %q with %q, %v; want the result", l.ends, l.got.Text, err)
		}
	})
}

func TestRunBeatsWithPhaseAndProgressAndOutlivesAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{beatErr: errors.New("away")}
		r, _ := newRunner(l)
		err := r.Run(t.Context(), ticket, device(func(ctx context.Context, progress func(time.Duration)) (aviary.Transcript, error) {
			progress(3 * time.Second)
			time.Sleep(35 * time.Second)
			return aviary.Transcript{}, ctx.Err()
		}))
		if err != nil || !slices.Equal(l.ends, []string{"finished"}) {
			t.Fatalf("ended %q, %v", l.ends, err)
		}
		want := aviary.Beat{Lease: r.Lease, Phase: aviary.PhaseTranscribing, Progress: 3 * time.Second}
		if !slices.Equal(l.beats, []aviary.Beat{want, want, want}) {
			t.Errorf("beats %+v, want three of %+v", l.beats, want)
		}
	})
}

func TestRunGivesUpOnAStoreThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		l := &ledger{writeErrs: slices.Repeat([]error{away}, 10_000)}
		r, w := newRunner(l)
		began := time.Now()
		if err := r.Run(t.Context(), ticket, says("hi")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 9*time.Minute || took > 11*time.Minute {
			t.Errorf("it tried for %v, want about 10 minutes", took)
		}
		if w.ends[0].Outcome != aviary.OutcomeLost {
			t.Errorf("outcome %s, want lost", w.ends[0].Outcome)
		}
	})
}

func TestRunBacksOffWithEachFailure(t *testing.T) {
	for failed, want := range map[int]time.Duration{0: 5 * time.Second, 1: 10 * time.Second, 3: 40 * time.Second, 60: 5 * time.Minute} {
		l := &ledger{job: aviary.Job{Fails: failed}}
		r, _ := newRunner(l)
		if err := r.Run(t.Context(), ticket, fails(errors.New("x"))); err != nil {
			t.Fatal(err)
		}
		if l.failure.Delay != want {
			t.Errorf("after %d failures the delay is %v, want %v", failed, l.failure.Delay, want)
		}
	}
}

// What was measured at intake is what runs: stored audio that is gone, unreadable or of another length is our fault, and another try may do better.
func TestRunChecksTheStoredAudio(t *testing.T) {
	second := make(aviary.PCM, aviary.SampleRate)
	for _, tt := range []struct {
		name     string
		hearing  hearing
		key      string
		duration time.Duration
		want     aviary.Code // of the failure; none: it runs
		retry    bool
	}{
		{"as measured", hearing{pcm: second}, "job_1.flac", time.Second, "", false},
		{"rounded", hearing{pcm: second}, "job_1.flac", time.Second - 60*time.Microsecond, "", false},
		{"shorter", hearing{pcm: second}, "job_1.flac", 1002 * time.Millisecond, aviary.CodeInternal, true},
		{"longer", hearing{pcm: second}, "job_1.flac", 998 * time.Millisecond, aviary.CodeInternal, true},
		{"gone", hearing{pcm: second}, "other", time.Second, aviary.CodeInternal, true},
		{"damaged", hearing{err: aviary.Errorf(aviary.CodeAudioBroken, "", "The file is damaged.")}, "job_1.flac", time.Second, aviary.CodeInternal, true},
		{"beyond the guard", hearing{err: aviary.Errorf(aviary.CodeAudioTooLong, "", "Too long.")}, "job_1.flac", time.Second, aviary.CodeAudioTooLong, false},
		{"a job of an older version has the upload alone", hearing{pcm: second}, "", 1040 * time.Millisecond, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &ledger{job: aviary.Job{BlobKey: "job_1", AudioKey: tt.key, Audio: aviary.Audio{Duration: tt.duration, Warnings: []string{"It hums."}}}}
			r, _ := newRunner(l)
			r.Prober, r.Blobs = tt.hearing, &shelf{blobs: map[string][]byte{"job_1": {1}, "job_1.flac": {2}}}
			heard := false
			err := r.Run(t.Context(), ticket, device(func(context.Context, func(time.Duration)) (aviary.Transcript, error) {
				heard = true
				return aviary.Transcript{Warnings: []string{"It ends early."}}, nil
			}))
			if err != nil || heard != (tt.want == "") {
				t.Fatalf("heard: %v, %v", heard, err)
			}
			if heard && !slices.Equal(l.got.Warnings, []string{"It hums.", "It ends early."}) {
				t.Errorf("warnings %q", l.got.Warnings)
			}
			if !heard && (l.failure.Problem.Code != tt.want || l.failure.Retry != tt.retry || l.failure.Problem.Detail == "The file is damaged.") {
				t.Errorf("failure %+v of %+v", l.failure, l.failure.Problem)
			}
		})
	}
}

// Out of memory in full attention is tried once more in local attention, within the same attempt; in local attention it is final.
func TestRunFallsBackToLocalAttention(t *testing.T) {
	oom := aviary.Errorf(aviary.CodeDeviceOutOfMemory, "device", "The device is out of memory.")
	for _, tt := range []struct {
		name   string
		asked  aviary.AttentionMode
		enough aviary.AttentionMode // what fits
		want   []aviary.AttentionMode
		ends   string
	}{
		{"full does not fit", aviary.AttentionFull, aviary.AttentionLocal, []aviary.AttentionMode{"full", "local"}, "finished"},
		{"the server's mode does not fit", "", aviary.AttentionLocal, []aviary.AttentionMode{"", "local"}, "finished"},
		{"nothing fits", aviary.AttentionAuto, "none", []aviary.AttentionMode{"auto", "local"}, "failed"},
		{"local does not fit", aviary.AttentionLocal, "none", []aviary.AttentionMode{"local"}, "failed"},
		{"it fits", aviary.AttentionFull, aviary.AttentionFull, []aviary.AttentionMode{"full"}, "finished"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &ledger{job: aviary.Job{Options: aviary.Options{Attention: tt.asked}}}
			r, _ := newRunner(l)
			d := &tight{enough: tt.enough, err: oom}
			if err := r.Run(t.Context(), ticket, d); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(d.modes, tt.want) || !slices.Equal(l.ends, []string{tt.ends}) {
				t.Errorf("ran %q, ended %q; want %q, %s", d.modes, l.ends, tt.want, tt.ends)
			}
			if told := len(l.got.Warnings) > 0; tt.ends == "finished" && told != (len(tt.want) > 1) {
				t.Errorf("warnings %q", l.got.Warnings)
			}
			if tt.ends == "failed" && (l.failure.Problem.Code != aviary.CodeDeviceOutOfMemory || l.failure.Retry) {
				t.Errorf("failure %+v", l.failure)
			}
		})
	}
}

// tight is a device with memory for one mode only.
type tight struct {
	enough aviary.AttentionMode
	err    error
	modes  []aviary.AttentionMode
}

func (d *tight) Name() string { return "cpu" }
func (d *tight) Transcribe(_ context.Context, _ aviary.PCM, mode aviary.AttentionMode, _ func(time.Duration)) (aviary.Transcript, error) {
	if d.modes = append(d.modes, mode); mode != d.enough {
		return aviary.Transcript{}, d.err
	}
	return aviary.Transcript{}, nil
}
