package aviary

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Meter measures how fast the whole system works: the audio that has come to succeed in the last minutes, by the store's counter, so that every process
// measures the same. The time in which there was nothing to do does not count: an idle system is not slow.
type Meter struct {
	Store MeterStore
	Log   *slog.Logger
	Every time.Duration // between two samples; default 5 s

	mu      sync.Mutex
	samples throughput
}

// MeterStore is the part of a Store that a Meter reads. Both reads take constant time.
type MeterStore interface {
	Processed(ctx context.Context) (Totals, error)
	Backlog(ctx context.Context) (Backlog, error)
}

// Run samples until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	every := m.Every
	if every <= 0 {
		every = 5 * time.Second
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	away := false
	for {
		s, err := m.sample(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !away:
			m.Log.Warn("the throughput cannot be measured: the store does not answer", "err", err)
		case err == nil:
			m.add(s)
		}
		away = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (m *Meter) sample(ctx context.Context) (throughputSample, error) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done, err := m.Store.Processed(ctx)
	if err != nil {
		return throughputSample{}, err
	}
	b, err := m.Store.Backlog(ctx)
	if err != nil {
		return throughputSample{}, err
	}
	return throughputSample{at: time.Now(), audio: done.Audio, busy: b.Queued().Jobs+b.Running.Jobs > 0}, nil
}

func (m *Meter) add(s throughputSample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples.add(s)
}

// Rate is how many seconds of audio were finished per second in the last 5 minutes. It is not ok as long as that is not known: after a start, without work,
// while nothing is finished, and when the store has not answered for long.
func (m *Meter) Rate() (audioPerSecond float64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.samples.rate(time.Now())
}

// throughput is the samples of the last minutes, oldest first.
type throughput []throughputSample

// throughputSample is one look at the store.
type throughputSample struct {
	at    time.Time
	audio time.Duration // that has ever succeeded
	busy  bool          // jobs wait or run
}

const (
	throughputWindow = 5 * time.Minute
	// leastBusy is the busy time that a rate is told of at the earliest: one job that ends just after the first look would make it look like thousands.
	leastBusy = 20 * time.Second
)

// add appends a sample and forgets what is too old. A counter that has fallen is another counter, and a clock that stood still or went back tells nothing
// about a time between: then measuring begins anew.
func (t *throughput) add(s throughputSample) {
	if n := len(*t); n > 0 {
		if last := (*t)[n-1]; s.audio < last.audio || !s.at.After(last.at) {
			*t = (*t)[:0]
		}
	}
	*t = append(*t, s)
	t.forget(s.at)
}

func (t *throughput) forget(now time.Time) {
	old := 0
	for old < len(*t) && now.Sub((*t)[old].at) > throughputWindow {
		old++
	}
	*t = append((*t)[:0], (*t)[old:]...)
}

// rate is what was finished in the window, per second in which there was work.
func (t *throughput) rate(now time.Time) (audioPerSecond float64, ok bool) {
	t.forget(now)
	var busy, audio time.Duration
	for i := 1; i < len(*t); i++ {
		from, to := (*t)[i-1], (*t)[i]
		if from.busy || to.busy || to.audio > from.audio {
			busy += to.at.Sub(from.at)
			audio += to.audio - from.audio
		}
	}
	if busy < leastBusy || audio <= 0 {
		return 0, false
	}
	return audio.Seconds() / busy.Seconds(), true
}
