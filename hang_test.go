package aviary_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
)

// watchedRunner is a runner with production's times, and with the devices that it found hanging.
func watchedRunner(l *ledger) (r *aviary.Runner, w *witness, hung chan string) {
	r, w = newRunner(l)
	r.Node, r.Stall, r.Grace, r.RunFloor = "n1", 90*time.Second, 30*time.Second, time.Minute
	hung = make(chan string, 1)
	r.Hung = func(h aviary.Hang) { hung <- h.Device }
	return r, w, hung
}

// labors is a device that works for a time in steps, each with a look at its context.
func labors(work, step time.Duration) device {
	return func(ctx context.Context, _ func(time.Duration)) (aviary.Transcript, error) {
		for began := time.Now(); time.Since(began) < work; time.Sleep(step) {
			if err := ctx.Err(); err != nil {
				return aviary.Transcript{}, err
			}
		}
		return aviary.Transcript{Text: "done"}, nil
	}
}

// A call that gives no sign of life hangs, wherever it is; what had one more sign does not.
func TestAHangingAttemptEndsTheProcess(t *testing.T) {
	forever := func(free chan struct{}) device {
		return func(context.Context, func(time.Duration)) (aviary.Transcript, error) {
			<-free
			return aviary.Transcript{Text: "too late"}, nil
		}
	}
	for _, tt := range []struct {
		name    string
		hearing bool // the decoder hangs
		device  func(free chan struct{}) device
		after   time.Duration
	}{
		{"in the engine", false, forever, 90 * time.Second},
		{"in the decoder", true, forever, 90 * time.Second},
		{"after a while", false, func(free chan struct{}) device {
			return func(ctx context.Context, p func(time.Duration)) (aviary.Transcript, error) {
				_, _ = labors(time.Minute, time.Second)(ctx, p)
				<-free
				return aviary.Transcript{}, nil
			}
		}, 150 * time.Second},
		{"progress is a sign too", false, func(free chan struct{}) device {
			return func(_ context.Context, progress func(time.Duration)) (aviary.Transcript, error) {
				for i := range 4 {
					time.Sleep(80 * time.Second)
					progress(time.Duration(i))
				}
				<-free
				return aviary.Transcript{}, nil
			}
		}, 410 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{}
				r, w, hung := watchedRunner(l)
				free := make(chan struct{})
				if tt.hearing {
					r.Prober = stuck{free: free}
				}
				began := time.Now()
				returned := make(chan error)
				go func() { returned <- r.Run(t.Context(), ticket, tt.device(free)) }()
				if device := <-hung; device != "cpu" {
					t.Errorf("hung: %q", device)
				}
				if took := time.Since(began); took < tt.after || took > tt.after+10*time.Second {
					t.Errorf("found after %v, want %v", took, tt.after)
				}
				if !slices.Equal(l.ends, []string{"failed"}) {
					t.Fatalf("recorded %q before the process ends", l.ends)
				}
				if f := l.failure; f.Problem.Code != aviary.CodeAttemptTimeout || !f.Retry || !f.Lost || f.Charge || f.Delay < 5*time.Second || f.Delay >= 7500*time.Millisecond {
					t.Errorf("failure %+v", f)
				}
				if e := w.ends[0]; e.Outcome != aviary.OutcomeLost || e.Code != aviary.CodeAttemptTimeout {
					t.Errorf("observed %+v", e)
				}
				synctest.Wait()
				select {
				case err := <-returned:
					t.Fatalf("Run returned (%v) while the device is busy: the next job would run beside this one", err)
				default:
				}
				close(free)
				if err := <-returned; !errors.Is(err, aviary.ErrDeviceLost) {
					t.Errorf("Run: %v, want ErrDeviceLost", err)
				}
				if len(l.ends) != 1 || len(w.ends) != 1 {
					t.Errorf("a late result was recorded too: %q", l.ends)
				}
			})
		})
	}
}

// stuck is a Prober whose decoder does not come back before it is freed.
type stuck struct {
	aviary.Prober
	free chan struct{}
}

func (s stuck) Decode(context.Context, io.ReaderAt, int64, time.Duration) (aviary.PCM, error) {
	<-s.free
	return nil, errors.New("freed")
}

// Slow work that looks at its context is left alone.
func TestSlowWorkDoesNotHang(t *testing.T) {
	for _, tt := range []struct {
		name   string
		audio  time.Duration
		device device
	}{
		{"an hour of audio at RTFx 0.7", time.Hour, labors(86*time.Minute, 250*time.Millisecond)},
		{"looks just in time", time.Minute, labors(18*time.Minute, 85*time.Second)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{job: aviary.Job{Audio: aviary.Audio{Duration: tt.audio}}}
				r, _, hung := watchedRunner(l)
				if err := r.Run(t.Context(), ticket, tt.device); err != nil || len(hung) > 0 || !slices.Equal(l.ends, []string{"finished"}) {
					t.Errorf("%v, hung %d, ended %q", err, len(hung), l.ends)
				}
			})
		})
	}
}

// At the run limit the work is told to stop, which engines do; one that does not is a hanging one a grace later.
func TestTheRunLimit(t *testing.T) {
	const limit = 10*time.Minute + 10*time.Minute // of a minute on a cold device
	for _, tt := range []struct {
		name  string
		obeys bool
		after time.Duration
	}{
		{"an engine that stops", true, limit},
		{"one that does not", false, limit + 30*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{job: aviary.Job{Audio: aviary.Audio{Duration: time.Minute}}}
				r, _, hung := watchedRunner(l)
				began, free := time.Now(), make(chan struct{})
				returned := make(chan error, 1)
				go func() {
					returned <- r.Run(t.Context(), ticket, device(func(ctx context.Context, _ func(time.Duration)) (aviary.Transcript, error) {
						for range 7200 {
							select {
							case <-free:
								return aviary.Transcript{}, nil
							case <-time.After(time.Second):
							}
							if err := ctx.Err(); err != nil && tt.obeys {
								return aviary.Transcript{}, err
							}
						}
						hung <- "never"
						return aviary.Transcript{}, nil
					}))
				}()
				var err error
				if tt.obeys {
					err = <-returned
				} else {
					<-hung
				}
				if took := time.Since(began); err != nil || took < tt.after || took > tt.after+10*time.Second {
					t.Errorf("after %v: %v; want %v", took, err, tt.after)
				}
				if f := l.failure; !slices.Equal(l.ends, []string{"failed"}) || f.Problem.Code != aviary.CodeAttemptTimeout || !f.Retry || !f.Lost || f.Charge {
					t.Errorf("ended %q: %+v", l.ends, f)
				}
				if c := l.claims[0]; c.Limit != limit || c.Node != "n1" || c.Device != "cpu" || c.Worker != "w1" {
					t.Errorf("claimed %+v", c)
				}
				if close(free); !tt.obeys {
					<-returned
				}
			})
		})
	}
}

// What a device has shown sets the limits that follow, and only on that device.
func TestRunLimitsFollowTheDevicesPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{job: aviary.Job{Audio: aviary.Audio{Duration: 10 * time.Minute}}}
		r, _, _ := watchedRunner(l)
		one := named{"cuda:0", labors(20*time.Second, time.Second)}
		for _, d := range []aviary.Device{one, one, named{"cuda:1", one.device}} {
			if err := r.Run(t.Context(), ticket, d); err != nil {
				t.Fatal(err)
			}
		}
		var limits []time.Duration
		for _, c := range l.claims {
			limits = append(limits, c.Limit)
		}
		if cold, warm := 110*time.Minute, 90*time.Second; !slices.Equal(limits, []time.Duration{cold, warm, cold}) {
			t.Errorf("limits %v, want %v and then %v, and %v elsewhere", limits, cold, warm, cold)
		}
	})
}

type named struct {
	name string
	device
}

func (n named) Name() string { return n.name }

// The process ends in bounded time though the store is away, or does not even look at its context, and then the lease ends the attempt.
func TestAHangEndsTheProcessWithoutAStore(t *testing.T) {
	for name, store := range map[string]func(*ledger, chan struct{}) aviary.AttemptStore{
		"away":  func(l *ledger, _ chan struct{}) aviary.AttemptStore { return l },
		"hangs": func(l *ledger, free chan struct{}) aviary.AttemptStore { return deafStore{l, free} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{beatErr: errors.New("away"), writeErrs: slices.Repeat([]error{errors.New("away")}, 1000)}
				r, w, hung := watchedRunner(l)
				free := make(chan struct{})
				r.Store = store(l, free)
				began := time.Now()
				returned := make(chan error)
				go func() {
					returned <- r.Run(t.Context(), ticket, device(func(context.Context, func(time.Duration)) (aviary.Transcript, error) {
						<-free
						return aviary.Transcript{}, nil
					}))
				}()
				<-hung
				if took := time.Since(began); took > 105*time.Second {
					t.Errorf("the process ends after %v", took)
				}
				if e := w.ends[0]; e.Outcome != aviary.OutcomeLost || e.Fenced {
					t.Errorf("observed %+v", e)
				}
				close(free)
				<-returned
				synctest.Wait()
			})
		})
	}
}

// deafStore does not come back from writing the end of an attempt.
type deafStore struct {
	*ledger
	free chan struct{}
}

func (s deafStore) FailAttempt(context.Context, aviary.AttemptRef, aviary.Failure) (aviary.State, error) {
	<-s.free
	return "", errors.New("freed")
}

// A hang is logged with where all goroutines are: the one that hangs among them.
func TestAHangIsLoggedWithStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var text strings.Builder
		l := &ledger{}
		r, _, hung := watchedRunner(l)
		r.Log = slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return text.Write(b)
		}), nil))
		free, returned := make(chan struct{}), make(chan error)
		go func() { returned <- r.Run(t.Context(), ticket, hangsHere(free)) }()
		<-hung
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"hangsHere", "phase=transcribing", "no sign of life for 1m3"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		}
		close(free)
		<-returned
	})
}

func hangsHere(free chan struct{}) device {
	return func(context.Context, func(time.Duration)) (aviary.Transcript, error) {
		<-free
		return aviary.Transcript{}, nil
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A device that failed costs the job no attempt, and takes no other job.
func TestAFailedDeviceIsLost(t *testing.T) {
	broken := aviary.Errorf(aviary.CodeDeviceFailed, "device", "It fell off the bus.")
	for _, tt := range []struct {
		name string
		end  error // of the run's context, meanwhile
		want string
	}{
		{"while it works", nil, "failed"},
		{"while the worker drains", aviary.ErrDrain, "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &ledger{job: aviary.Job{Lost: 1, Fails: 2}}
			r, w, hung := watchedRunner(l)
			ctx, cancel := context.WithCancelCause(t.Context())
			err := r.Run(ctx, ticket, device(func(context.Context, func(time.Duration)) (aviary.Transcript, error) {
				if tt.end != nil {
					cancel(tt.end)
				}
				return aviary.Transcript{}, broken
			}))
			cancel(nil)
			if !errors.Is(err, aviary.ErrDeviceLost) || !errors.Is(err, broken) || len(hung) > 0 {
				t.Errorf("Run: %v, hung %d", err, len(hung))
			}
			if f := l.failure; !slices.Equal(l.ends, []string{tt.want}) || !f.Retry || !f.Lost || f.Charge || f.Delay < 10*time.Second || f.Delay >= 15*time.Second {
				t.Errorf("ended %q: %+v", l.ends, f)
			}
			if w.ends[0].Outcome != aviary.OutcomeLost || w.ends[0].Code != aviary.CodeDeviceFailed {
				t.Errorf("observed %+v", w.ends[0])
			}
		})
	}
}

// Metrics tell a refused end from a store that is away.
func TestARefusedEndIsFenced(t *testing.T) {
	gone := aviary.Errorf(aviary.CodeNotFound, "store", "gone")
	for _, tt := range []struct {
		name   string
		ledger *ledger
		device device
	}{
		{"a result", &ledger{writeErrs: []error{aviary.ErrStale}}, says("hi")},
		{"a result of a job that is no more", &ledger{writeErrs: []error{gone}}, says("hi")},
		{"a failure", &ledger{writeErrs: []error{aviary.ErrStale}}, fails(errors.New("x"))},
		{"a heartbeat", &ledger{beatErr: aviary.ErrStale}, waits},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w, _ := watchedRunner(tt.ledger)
				if err := r.Run(t.Context(), ticket, tt.device); err != nil {
					t.Fatal(err)
				}
				if len(tt.ledger.ends) > 0 || len(w.ends) != 1 || !w.ends[0].Fenced || w.ends[0].Outcome != aviary.OutcomeLost {
					t.Errorf("ended %q, observed %+v", tt.ledger.ends, w.ends)
				}
			})
		})
	}
}

// While the store is away, a result is kept, and the device with it: nothing else could be recorded either.
func TestAKeptResultHoldsItsDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		l := &ledger{writeErrs: slices.Repeat([]error{away}, 60)}
		r, _, hung := watchedRunner(l)
		began := time.Now()
		if err := r.Run(t.Context(), ticket, says("kept")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 100*time.Second || len(hung) > 0 || l.got.Text != "kept" {
			t.Errorf("after %v, hung %d, %q", took, len(hung), l.got.Text)
		}
	})
}

// A storage that does not answer is no fault of the recording: it costs no attempt, until that has gone on for long.
func TestAStorageThatIsAwayCostsNoAttempt(t *testing.T) {
	for _, tt := range []struct {
		name    string
		attempt int
		blob    error // of opening
		read    error
		charge  bool
		delay   time.Duration
	}{
		{"opening", 0, errors.New("stale file handle"), nil, false, 5 * time.Second},
		{"reading", 2, nil, errors.New("input/output error"), false, 20 * time.Second},
		{"for too long", 8, errors.New("stale file handle"), nil, true, 5 * time.Second},
		{"a blob that is gone", 0, aviary.Errorf(aviary.CodeNotFound, "blobs", "none"), nil, true, 5 * time.Second},
		{"a short file", 0, nil, io.ErrUnexpectedEOF, false, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &ledger{job: aviary.Job{Attempt: tt.attempt, AudioKey: "job_1.flac"}}
			r, _, _ := watchedRunner(l)
			r.Blobs, r.Prober = brokenShelf{open: tt.blob, read: tt.read}, reading{}
			if err := r.Run(t.Context(), ticket, says("")); err != nil {
				t.Fatal(err)
			}
			if f := l.failure; f.Problem == nil || f.Problem.Code != aviary.CodeInternal || !f.Retry || f.Lost || f.Charge != tt.charge || f.Delay != tt.delay {
				t.Errorf("failure %+v of %+v", f, f.Problem)
			}
		})
	}
}

// brokenShelf is a storage with one blob, or without.
type brokenShelf struct {
	aviary.Blobs
	open, read error
}

func (s brokenShelf) Open(context.Context, string) (aviary.Blob, error) {
	return brokenBlob{s.read}, s.open
}

type brokenBlob struct{ err error }

func (b brokenBlob) ReadAt([]byte, int64) (int, error) { return 0, b.err }
func (brokenBlob) Close() error                        { return nil }
func (brokenBlob) Size() int64                         { return 1 }

// reading is a decoder that blames the file for whatever goes wrong.
type reading struct{ aviary.Prober }

func (reading) Decode(_ context.Context, r io.ReaderAt, _ int64, _ time.Duration) (aviary.PCM, error) {
	if _, err := r.ReadAt(make([]byte, 1), 0); err != nil {
		return nil, aviary.WrapError(aviary.CodeAudioBroken, "probe.decode", err, "The file is damaged.")
	}
	return nil, nil
}
