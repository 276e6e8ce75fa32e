package storetest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// The stages of a job: its state, and what else decides which transitions are open.
const (
	waiting    = "waiting"    // queued, may be handed over
	delayed    = "delayed"    // queued, not before some time
	dispatched = "dispatched" // queued, a ticket is out
	running    = "running"
	stopping   = "stopping"  // running, to be canceled
	silent     = "silent"    // running, the lease has run out
	overdue    = "overdue"   // running beyond the limit, and still giving signs of life
	abandoned  = "abandoned" // silent, and to be canceled
	succeeded  = "succeeded"
	failed     = "failed"
	soundless  = "soundless" // failed, and the audio is gone
	canceled   = "canceled"
	expired    = "expired"
)

// arranged is a job in some stage, with what its last worker and its last ticket would carry.
type arranged struct {
	*fixture
	id     string
	ticket aviary.Ticket
	ref    aviary.AttemptRef
}

// arrange makes a job of a stage. Every stage from running on has been through two attempts, and every one from dispatched on through a ticket.
func arrange(f *fixture, stage string) arranged {
	f.Helper()
	ctx := f.Context()
	job := f.create(bulk)
	a := arranged{fixture: f, id: job.ID, ticket: aviary.Ticket{JobID: job.ID, Priority: bulk}, ref: aviary.AttemptRef{JobID: job.ID}}
	if stage == waiting {
		return a
	}
	if stage == dispatched {
		a.ticket = f.dispatch(job)
		return a
	}
	job, a.ref = f.start(job)
	a.ticket.Generation = job.Generation
	delay := time.Duration(0)
	if stage == delayed {
		delay = time.Hour
	}
	f.must(second(f.FailAttempt(ctx, a.ref, aviary.Failure{Problem: broken, Retry: true, Delay: delay, Charge: true})))
	if stage == delayed {
		return a
	}
	job, a.ref = f.start(job)
	a.ticket.Generation = job.Generation
	switch stage {
	case stopping, abandoned, canceled:
		got(f.Cancel(ctx, job.ID))(f)
	case succeeded, expired:
		f.must(f.FinishAttempt(ctx, a.ref, transcript(1)))
	case failed, soundless:
		f.must(second(f.FailAttempt(ctx, a.ref, aviary.Failure{Problem: broken, Charge: true})))
	}
	switch stage {
	case silent, abandoned:
		f.clock.Advance(lease)
	case overdue:
		f.clock.Advance(runLimit)
		got(f.Heartbeat(ctx, a.ref, aviary.Beat{Lease: lease}))(f)
	case soundless:
		f.clock.Advance(time.Second)
		got(f.DropAudio(ctx, time.Second, 1_000_000))(f)
	case canceled:
		f.must(f.CancelAttempt(ctx, a.ref))
	case expired:
		got(f.Expire(ctx, job.ID, false))(f)
	}
	return a
}

// stage is what became of a job. A silent one is told from a running one by the clock.
func (f *fixture) stage(id string) string {
	f.Helper()
	job, now := f.job(id), f.clock.Now()
	switch {
	case job.State == aviary.StateRunning && !job.LeaseUntil.After(now) && job.CancelRequested:
		return abandoned
	case job.State == aviary.StateRunning && !job.LeaseUntil.After(now):
		return silent
	case job.CancelRequested:
		return stopping
	case job.State == aviary.StateRunning && now.Sub(job.StartedAt) >= runLimit:
		return overdue
	case job.State == aviary.StateFailed && job.AudioGone:
		return soundless
	case job.State != aviary.StateQueued:
		return string(job.State)
	case job.NotBefore.After(now):
		return delayed
	}
	out := got(f.Stranded(f.Context(), 0, 1_000_000))(f)
	if slices.ContainsFunc(out, func(t aviary.Ticket) bool { return t.JobID == id }) {
		return dispatched
	}
	return waiting
}

var deeds = map[string]func(a arranged) error{
	"dispatch":   func(a arranged) error { return second(a.Dispatch(a.Context(), []string{a.id})) },
	"look":       func(a arranged) error { return second(a.Waiting(a.Context(), bulk, 1_000_000)) },
	"undispatch": func(a arranged) error { return a.Undispatch(a.Context(), a.ticket) },
	"wipe":       func(a arranged) error { return second(a.UndispatchAll(a.Context())) },
	"claim": func(a arranged) error {
		return second(a.StartAttempt(a.Context(), a.ticket, aviary.Claim{Worker: "w", Device: "d", Lease: lease}))
	},
	"claim-old": func(a arranged) error {
		a.ticket.Generation--
		return second(a.StartAttempt(a.Context(), a.ticket, aviary.Claim{Worker: "w", Device: "d", Lease: lease}))
	},
	"beat": func(a arranged) error {
		return second(a.Heartbeat(a.Context(), a.ref, aviary.Beat{Lease: lease, Phase: aviary.PhaseTranscribing, Progress: time.Second}))
	},
	"beat-old": func(a arranged) error {
		a.ref.Attempt--
		return second(a.Heartbeat(a.Context(), a.ref, aviary.Beat{Lease: lease}))
	},
	"finish": func(a arranged) error { return a.FinishAttempt(a.Context(), a.ref, transcript(2)) },
	"finish-old": func(a arranged) error {
		a.ref.Attempt--
		return a.FinishAttempt(a.Context(), a.ref, transcript(3))
	},
	"fail": func(a arranged) error {
		return second(a.FailAttempt(a.Context(), a.ref, aviary.Failure{Problem: broken, Charge: true}))
	},
	"fail-old": func(a arranged) error {
		a.ref.Attempt--
		return second(a.FailAttempt(a.Context(), a.ref, aviary.Failure{Problem: broken, Charge: true}))
	},
	"fail-later": func(a arranged) error {
		return second(a.FailAttempt(a.Context(), a.ref, aviary.Failure{Problem: broken, Retry: true, Delay: time.Hour, Charge: true}))
	},
	"fail-again": func(a arranged) error {
		return second(a.FailAttempt(a.Context(), a.ref, aviary.Failure{Problem: broken, Retry: true}))
	},
	"release":   func(a arranged) error { return a.ReleaseAttempt(a.Context(), a.ref) },
	"stop":      func(a arranged) error { return a.CancelAttempt(a.Context(), a.ref) },
	"reap":      func(a arranged) error { return second(a.ReapLost(a.Context(), 1_000_000)) },
	"reap-late": func(a arranged) error { return second(a.ReapOverdue(a.Context(), 0, 1_000_000)) },
	"take-over": func(a arranged) error {
		return second(a.TakeOver(a.Context(), aviary.Claim{Worker: "worker-2", Node: claim.Node, Device: claim.Device}))
	},
	"take-mine": func(a arranged) error { return second(a.TakeOver(a.Context(), claim)) },
	"fail-lost": func(a arranged) error {
		return second(a.FailAttempt(a.Context(), a.ref, aviary.Failure{Problem: broken, Retry: true, Lost: true, Delay: time.Hour}))
	},
	"drop-audio":  func(a arranged) error { return second(a.DropAudio(a.Context(), 0, 1_000_000)) },
	"expire-old":  func(a arranged) error { return second(a.ExpireOld(a.Context(), 0, 1_000_000)) },
	"bury-young":  func(a arranged) error { return second(a.DropTombstones(a.Context(), time.Hour, 1_000_000)) },
	"cancel":      func(a arranged) error { return second(a.Cancel(a.Context(), a.id)) },
	"retry":       func(a arranged) error { return second(a.Retry(a.Context(), a.id)) },
	"expire":      func(a arranged) error { return second(a.Expire(a.Context(), a.id, false)) },
	"expire-hard": func(a arranged) error { return second(a.Expire(a.Context(), a.id, true)) },
}

func second[T any](_ T, err error) error { return err }

// transitions is the whole state machine: each deed (row) on a job in each stage (column). A cell is the stage afterwards, "-" if nothing changes
// and there is no error, or a refusal with nothing changed.
const transitions = `
             waiting     delayed   dispatched  running    stopping   silent     overdue    abandoned  succeeded  failed     soundless  canceled  expired
look         -           -         -           -          -          -          -          -          -          -          -          -         -
dispatch     dispatched  -         -           -          -          -          -          -          -          -          -          -         -
undispatch   -           -         waiting     -          -          -          -          -          -          -          -          -         -
wipe         -           -         waiting     -          -          -          -          -          -          -          -          -         -
claim        !ticket     !ticket   running     !ticket    !ticket    !ticket    !ticket    !ticket    !ticket    !ticket    !ticket    !ticket   !ticket
claim-old    !ticket     !ticket   !ticket     !ticket    !ticket    !ticket    !ticket    !ticket    !ticket    !ticket    !ticket    !ticket   !ticket
beat         !stale      !stale    !stale      running    stopping   running    overdue    stopping   !stale     !stale     !stale     !stale    !stale
beat-old     !stale      !stale    !stale      !stale     !stale     !stale     !stale     !stale     !stale     !stale     !stale     !stale    !stale
finish       !stale      !stale    !stale      succeeded  succeeded  succeeded  succeeded  succeeded  -          !stale     !stale     !stale    !stale
finish-old   !stale      !stale    !stale      !stale     !stale     !stale     !stale     !stale     !stale     !stale     !stale     !stale    !stale
fail         !stale      !stale    !stale      failed     failed     failed     failed     failed     !stale     !stale     !stale     !stale    !stale
fail-old     !stale      !stale    !stale      !stale     !stale     !stale     !stale     !stale     !stale     !stale     !stale     !stale    !stale
fail-later   !stale      !stale    !stale      delayed    canceled   delayed    delayed    canceled   !stale     !stale     !stale     !stale    !stale
fail-lost    !stale      !stale    !stale      delayed    canceled   delayed    delayed    canceled   !stale     !stale     !stale     !stale    !stale
fail-again   !stale      !stale    !stale      waiting    canceled   waiting    waiting    canceled   !stale     !stale     !stale     !stale    !stale
release      !stale      !stale    !stale      waiting    canceled   waiting    waiting    canceled   !stale     !stale     !stale     !stale    !stale
stop         !stale      !stale    !stale      !stale     canceled   !stale     !stale     canceled   !stale     !stale     !stale     !stale    !stale
reap         -           -         -           -          -          delayed    -          canceled   -          -          -          -         -
reap-late    -           -         -           -          -          -          delayed    -          -          -          -          -         -
take-over    -           -         -           delayed    canceled   delayed    delayed    canceled   -          -          -          -         -
take-mine    -           -         -           -          -          -          -          -          -          -          -          -         -
cancel       canceled    canceled  canceled    stopping   -          abandoned  stopping   -          -          -          -          -         -
retry        !state      !state    !state      !state     !state     !state     !state     !state     !state     waiting    !gone      waiting   !gone
drop-audio   -           -         -           -          -          -          -          -          succeeded  soundless  -          canceled  -
expire-old   -           -         -           -          -          -          -          -          expired    expired    expired    expired   -
bury-young   -           -         -           -          -          -          -          -          -          -          -          -         -
expire       !active     !active   !active     !active    !active    !active    !active    !active    expired    expired    expired    expired   -
expire-hard  expired     expired   expired     expired    expired    expired    expired    expired    expired    expired    expired    expired   -
`

var refusals = map[string]string{"!stale": "stale", "!ticket": "unclaimable", "!state": "state_conflict", "!active": "job_active", "!gone": "job_expired"}

func testTransitions(t *testing.T, b Backend) {
	lines := strings.Split(strings.TrimSpace(transitions), "\n")
	stages := strings.Fields(lines[0])
	for column, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			f.create(interactive)
			for _, line := range lines[1:] {
				cells := strings.Fields(line)
				checkTransition(t, f, stage, cells[0], cells[column+1])
			}
			checkInvariants(t, f.Store)
		})
	}
}

// checkTransition does one deed on one job, and looks at what may and what may not have changed.
func checkTransition(t *testing.T, f *fixture, stage, deed, want string) {
	t.Helper()
	ctx := t.Context()
	a := arrange(f, stage)
	same(t, "arranged stage", f.stage(a.id), stage)
	jobBefore, attemptsBefore := f.job(a.id), got(f.Attempts(ctx, a.id))(t)
	transcriptBefore, _ := f.Transcript(ctx, a.id)

	err := deeds[deed](a)

	cell := stage + " job, " + deed + ": "
	wantErr, refused := refusals[want]
	same(t, cell+"error", kind(err), wantErr)
	job, attempts := f.job(a.id), got(f.Attempts(ctx, a.id))(t)
	if refused || want == "-" {
		same(t, cell+"job", job, jobBefore)
		same(t, cell+"attempts", attempts, attemptsBefore)
		after, _ := f.Transcript(ctx, a.id)
		same(t, cell+"transcript", after, transcriptBefore)
		return
	}
	same(t, cell+"stage", f.stage(a.id), want)
	if seen := !visiblySame(job, jobBefore); seen && job.Version <= jobBefore.Version || !seen && job.Version != jobBefore.Version {
		t.Fatalf("%sthe version went from %d to %d\nfrom %+v\n  to %+v", cell, jobBefore.Version, job.Version, jobBefore, job)
	}
	for i, was := range attemptsBefore {
		if !was.EndedAt.IsZero() {
			same(t, cell+"an attempt that had ended", attempts[i], was)
		}
	}
	checkJob(t, f.Store, job)
}

// visiblySame compares what clients can see of a job.
func visiblySame(a, b aviary.Job) bool {
	for _, j := range []*aviary.Job{&a, &b} {
		j.Version, j.Generation, j.NotBefore, j.LeaseUntil = 0, 0, time.Time{}, time.Time{}
	}
	return reflect.DeepEqual(a, b)
}
