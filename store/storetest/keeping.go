package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/aviary-asr/aviary"
)

// What the model does as leader and as housekeeper.

// Lead implements aviary.Dispatching.
func (m *Model) Lead(_ context.Context, holder string, term time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leader != holder && m.leadsTill.After(m.now()) {
		return false, nil
	}
	m.leader, m.leadsTill = holder, m.now().Add(term)
	return true, nil
}

// Resign implements aviary.Dispatching.
func (m *Model) Resign(_ context.Context, holder string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leader == holder {
		m.leadsTill = time.Time{}
	}
	return nil
}

// old are up to limit final jobs that fit and ended some time ago, the oldest first.
func (m *Model) old(age time.Duration, limit int, fits func(j *modelJob) bool) []*modelJob {
	var list []*modelJob
	for _, j := range m.jobs {
		if j.State.Final() && j.State != aviary.StateExpired && m.now().Sub(j.FinishedAt) >= age && fits(j) {
			list = append(list, j)
		}
	}
	slices.SortStableFunc(list, func(a, b *modelJob) int { return a.FinishedAt.Compare(b.FinishedAt) })
	return list[:min(limit, len(list))]
}

// ExpireOld implements aviary.Housekeeping.
func (m *Model) ExpireOld(_ context.Context, age time.Duration, limit int) ([]aviary.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []aviary.Job
	for _, j := range m.old(age, limit, func(*modelJob) bool { return true }) {
		list = append(list, j.Job)
		j.expire(m.now())
	}
	return list, nil
}

// DropAudio implements aviary.Housekeeping.
func (m *Model) DropAudio(_ context.Context, age time.Duration, limit int) ([]aviary.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []aviary.Job
	for _, j := range m.old(age, limit, func(j *modelJob) bool { return !j.AudioGone }) {
		j.AudioGone = true
		j.Version++
		list = append(list, j.Job)
	}
	return list, nil
}

// DropTombstones implements aviary.Housekeeping.
func (m *Model) DropTombstones(_ context.Context, age time.Duration, limit int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*modelJob
	for _, j := range m.jobs {
		if j.State == aviary.StateExpired && m.now().Sub(j.expiredAt) >= age {
			list = append(list, j)
		}
	}
	slices.SortStableFunc(list, func(a, b *modelJob) int { return a.expiredAt.Compare(b.expiredAt) })
	list = list[:min(limit, len(list))]
	m.jobs = slices.DeleteFunc(m.jobs, func(j *modelJob) bool { return slices.Contains(list, j) })
	return len(list), nil
}

// Unwanted implements aviary.Housekeeping.
func (m *Model) Unwanted(_ context.Context, keys []string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []string
	for _, key := range keys {
		if !slices.ContainsFunc(m.jobs, func(j *modelJob) bool { return !j.AudioGone && key != "" && (j.BlobKey == key || j.AudioKey == key) }) {
			list = append(list, key)
		}
	}
	return list, nil
}

// Recount implements aviary.Housekeeping. The model has no counters.
func (*Model) Recount(context.Context) ([]string, error) { return nil, nil }
