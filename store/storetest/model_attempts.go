package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aviary-asr/aviary"
)

// What the model does with attempts: how they begin and end, and who ends them for those that cannot any more.

// reap ends attempts as lost, in the order of a time that each has.
func (m *Model) reap(limit int, code aviary.Code, detail string, due func(j *modelJob) (since time.Time, ok bool)) []aviary.Reaped {
	var lost []*modelJob
	for _, j := range m.jobs {
		if _, ok := due(j); ok && j.State == aviary.StateRunning {
			lost = append(lost, j)
		}
	}
	slices.SortStableFunc(lost, func(a, b *modelJob) int {
		x, _ := due(a)
		y, _ := due(b)
		return x.Compare(y)
	})
	problem := &aviary.Problem{Code: code, Title: code.Title(), Detail: detail, Retryable: code.Retryable()}
	var list []aviary.Reaped
	for i, j := range lost[:min(limit, len(lost))] {
		apart := time.Duration(i%100) * time.Millisecond
		r := aviary.Reaped{AttemptRef: aviary.AttemptRef{JobID: j.ID, Attempt: j.Attempt}, Worker: j.Worker, Device: j.Device, Code: code}
		j.lose(problem, m.now(), m.now().Add(5*time.Second<<j.Lost+apart))
		r.State = j.State
		m.countLost(j)
		list = append(list, r)
	}
	return list
}

// countLost counts the attempt of a job that was just lost.
func (m *Model) countLost(j *modelJob) {
	m.processed.Lost++
	if j.State == aviary.StateFailed {
		m.processed.Quarantined++
	}
}

// lose ends the newest attempt as lost, and what becomes of the job is for its losses to say.
func (j *modelJob) lose(p *aviary.Problem, now, notBefore time.Time) {
	j.Lost++
	j.end(aviary.OutcomeLost, now, p)
	switch {
	case j.CancelRequested:
		j.finish(aviary.StateCanceled, now, problemCanceled)
	case j.Lost >= aviary.MaxLost:
		quarantined := *p
		quarantined.Detail = fmt.Sprintf("The job is quarantined: %d workers were lost with it. Its audio is kept, so that it can be looked into, or retried once "+
			"the cause is known. The last time: %s", j.Lost, p.Detail)
		j.finish(aviary.StateFailed, now, &quarantined)
	default:
		j.requeue(notBefore)
	}
}

// ReapLost implements aviary.Dispatching.
func (m *Model) ReapLost(_ context.Context, limit int) ([]aviary.Reaped, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reap(limit, aviary.CodeWorkerLost, "The worker stopped giving signs of life.", func(j *modelJob) (time.Time, bool) {
		return j.LeaseUntil, !j.LeaseUntil.After(m.now())
	}), nil
}

// ReapOverdue implements aviary.Dispatching.
func (m *Model) ReapOverdue(_ context.Context, grace time.Duration, limit int) ([]aviary.Reaped, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	const detail = "The attempt ran beyond its limit, and its worker did not end it."
	return m.reap(limit, aviary.CodeAttemptTimeout, detail, func(j *modelJob) (time.Time, bool) {
		return j.deadline, !j.deadline.IsZero() && !j.deadline.Add(grace).After(m.now())
	}), nil
}

// TakeOver implements aviary.Attempting.
func (m *Model) TakeOver(_ context.Context, c aviary.Claim) ([]aviary.Reaped, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	const detail = "The worker was gone when another one took over its device."
	return m.reap(len(m.jobs), aviary.CodeWorkerLost, detail, func(j *modelJob) (time.Time, bool) {
		return j.LeaseUntil, c.Node != "" && j.node == c.Node && j.Device == c.Device && j.Worker != c.Worker
	}), nil
}

// adopt makes the model wait as long as a store does, where that is for the store to choose.
func (m *Model) adopt(job aviary.Job) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j, err := m.find(job.ID); err == nil {
		j.NotBefore = job.NotBefore
	}
}

// StartAttempt implements aviary.Attempting.
func (m *Model) StartAttempt(_ context.Context, t aviary.Ticket, c aviary.Claim) (aviary.Job, error) {
	return m.with(t.JobID, func(j *modelJob, now time.Time) error {
		if j.State != aviary.StateQueued || j.dispatchedAt.IsZero() || j.Generation != t.Generation {
			return aviary.ErrNotClaimable
		}
		j.State, j.Phase, j.dispatchedAt = aviary.StateRunning, aviary.PhaseDecoding, time.Time{}
		j.Attempt++
		j.Version++
		j.Worker, j.Device, j.node, j.StartedAt, j.LeaseUntil = c.Worker, c.Device, c.Node, now, now.Add(c.Lease)
		if c.Limit > 0 {
			j.deadline = now.Add(c.Limit)
		}
		j.attempts = append(j.attempts, aviary.Attempt{AttemptRef: aviary.AttemptRef{JobID: j.ID, Attempt: j.Attempt},
			Worker: c.Worker, Device: c.Device, StartedAt: now})
		return nil
	})
}

// Heartbeat implements aviary.Attempting.
func (m *Model) Heartbeat(_ context.Context, ref aviary.AttemptRef, b aviary.Beat) (cancel bool, err error) {
	err = m.attempt(ref, func(j *modelJob, now time.Time) error {
		phase := b.Phase
		if phase == "" {
			phase = j.Phase
		}
		if phase != j.Phase || b.Progress != j.Progress {
			j.Version++
		}
		j.Phase, j.Progress, j.LeaseUntil = phase, b.Progress, now.Add(b.Lease)
		cancel = j.CancelRequested
		return nil
	})
	return cancel, err
}

// FinishAttempt implements aviary.Attempting.
func (m *Model) FinishAttempt(_ context.Context, ref aviary.AttemptRef, t aviary.Transcript) error {
	body, err := json.Marshal(t)
	if err != nil {
		return aviary.WrapError(aviary.CodeEngineFailed, "model", err, "")
	}
	done := false
	_, err = m.with(ref.JobID, func(j *modelJob, _ time.Time) error {
		done = j.State == aviary.StateSucceeded && j.Attempt == ref.Attempt
		return nil
	})
	if done || err != nil {
		return err
	}
	return m.attempt(ref, func(j *modelJob, now time.Time) error {
		m.processed.Jobs++
		m.processed.Audio += j.Audio.Duration
		kept := new(aviary.Transcript)
		if err := json.Unmarshal(body, kept); err != nil {
			return err
		}
		j.transcript, j.Attention, j.Progress = kept, &kept.Engine.Attention, j.Audio.Duration
		j.end(aviary.OutcomeSucceeded, now, nil)
		j.finish(aviary.StateSucceeded, now, nil)
		return nil
	})
}

// FailAttempt implements aviary.Attempting.
func (m *Model) FailAttempt(_ context.Context, ref aviary.AttemptRef, f aviary.Failure) (state aviary.State, err error) {
	if f.Problem == nil {
		f.Problem = &aviary.Problem{Code: aviary.CodeInternal, Title: aviary.CodeInternal.Title(), Retryable: true}
	}
	err = m.attempt(ref, func(j *modelJob, now time.Time) error {
		if f.Charge {
			j.Fails++
		}
		switch {
		case f.Retry && j.CancelRequested:
			outcome := aviary.OutcomeCanceled
			if f.Lost {
				outcome = aviary.OutcomeLost
				j.Lost++
			}
			j.end(outcome, now, f.Problem)
			j.finish(aviary.StateCanceled, now, problemCanceled)
		case f.Retry && f.Lost && (j.Lost+1 >= aviary.MaxLost || !f.Charge || j.Fails < j.MaxAttempts):
			var notBefore time.Time
			if f.Delay > 0 {
				notBefore = now.Add(f.Delay)
			}
			j.lose(f.Problem, now, notBefore)
		case f.Lost:
			j.Lost++
			j.end(aviary.OutcomeLost, now, f.Problem)
			j.finish(aviary.StateFailed, now, f.Problem)
		case f.Retry && (!f.Charge || j.Fails < j.MaxAttempts):
			var notBefore time.Time
			if f.Delay > 0 {
				notBefore = now.Add(f.Delay)
			}
			j.end(aviary.OutcomeRetried, now, f.Problem)
			j.requeue(notBefore)
		default:
			j.end(aviary.OutcomeFailed, now, f.Problem)
			j.finish(aviary.StateFailed, now, f.Problem)
		}
		if f.Lost {
			m.countLost(j)
		}
		state = j.State
		return nil
	})
	return state, err
}

// ReleaseAttempt implements aviary.Attempting.
func (m *Model) ReleaseAttempt(ctx context.Context, ref aviary.AttemptRef) error {
	err := m.CancelAttempt(ctx, ref)
	if !errors.Is(err, aviary.ErrStale) {
		return err
	}
	return m.attempt(ref, func(j *modelJob, now time.Time) error {
		j.end(aviary.OutcomeReleased, now, nil)
		j.requeue(time.Time{})
		return nil
	})
}

// CancelAttempt implements aviary.Attempting.
func (m *Model) CancelAttempt(_ context.Context, ref aviary.AttemptRef) error {
	return m.attempt(ref, func(j *modelJob, now time.Time) error {
		if !j.CancelRequested {
			return aviary.ErrStale
		}
		j.end(aviary.OutcomeCanceled, now, nil)
		j.finish(aviary.StateCanceled, now, problemCanceled)
		return nil
	})
}
