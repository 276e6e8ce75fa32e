package aviary

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestThroughput(t *testing.T) {
	t.Parallel()
	type look struct {
		at, audio int // seconds
		busy      bool
	}
	// every gives looks 10 s apart, from and to the given times, with so much more audio each time.
	every := func(from, to, audio, more int, busy bool) (list []look) {
		for at := from; at <= to; at += 10 {
			list = append(list, look{at, audio, busy})
			audio += more
		}
		return list
	}
	tests := []struct {
		name  string
		looks [][]look
		now   int
		want  float64 // 0: not known
	}{
		{"nothing", nil, 0, 0},
		{"one look", [][]look{{{0, 1000, true}}}, 0, 0},
		{"steady", [][]look{every(0, 100, 1000, 300, true)}, 100, 30},
		{"what was before does not count", [][]look{every(0, 0, 1e6, 0, true), every(10, 100, 1e6, 10, true)}, 100, .9},
		{"too short", [][]look{every(0, 10, 0, 300, true)}, 10, 0},
		{"just long enough", [][]look{every(0, 20, 0, 300, true)}, 20, 30},
		{"a counter that stands still", [][]look{every(0, 200, 777, 0, true)}, 200, 0},
		{"without work", [][]look{every(0, 200, 777, 0, false)}, 200, 0},
		{"idle before", [][]look{every(0, 200, 0, 0, false), every(210, 250, 0, 100, true)}, 250, 8}, // 400 s in the 50 s since somebody came
		{"idle between and after", [][]look{every(0, 100, 0, 100, true), every(110, 200, 1000, 0, false)}, 200, 1000. / 110},
		{"short work between two looks", [][]look{{{0, 0, false}, {10, 50, false}, {20, 100, false}}}, 20, 5},
		{"the last 5 minutes", [][]look{every(0, 300, 0, 1000, true), every(310, 610, 31000, 10, true)}, 610, 1},
		{"looks that are too old", [][]look{every(0, 100, 1000, 300, true)}, 401, 0},
		{"the store was away", [][]look{every(0, 50, 0, 100, true), every(170, 200, 1700, 100, true)}, 200, 10},
		{"the store was away for longer than is measured", [][]look{every(0, 50, 0, 100, true), every(400, 400, 9999, 0, true)}, 400, 0},
		{"another counter", [][]look{every(0, 100, 50000, 100, true), every(110, 150, 0, 200, true)}, 150, 20},
		{"another counter just now", [][]look{every(0, 100, 50000, 100, true), every(110, 110, 0, 0, true)}, 110, 0},
		{"a clock that went back", [][]look{every(500, 600, 0, 100, true), every(100, 140, 1000, 200, true)}, 140, 20},
		{"a clock that stood still", [][]look{every(0, 100, 0, 100, true), {{100, 9999, true}}}, 100, 0},
	}
	origin := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return origin.Add(time.Duration(s) * time.Second) }
	for _, tt := range tests {
		var m throughput
		for _, list := range tt.looks {
			for _, l := range list {
				m.add(throughputSample{at: at(l.at), audio: time.Duration(l.audio) * time.Second, busy: l.busy})
			}
		}
		got, ok := m.rate(at(tt.now))
		if ok != (tt.want > 0) || math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v %v, want %v", tt.name, got, ok, tt.want)
		}
	}
}

// turning is a store whose counter a test moves.
type turning struct {
	mu    sync.Mutex
	audio time.Duration
	err   error
	reads int
}

func (s *turning) Processed(context.Context) (Totals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return Totals{Amount: Amount{Audio: s.audio}}, s.err
}

func (s *turning) Backlog(context.Context) (Backlog, error) {
	return Backlog{Running: Amount{Jobs: 1}}, nil
}

// set changes the store; err is its answer from now on.
func (s *turning) set(more time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audio, s.err = s.audio+more, err
}

func TestMeterRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &turning{audio: time.Hour}
		m := &Meter{Store: s, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); m.Run(ctx) }()
		// tick lets a minute pass in which the counter moves by 30 s each second.
		minute := func(err error) {
			for range 60 {
				time.Sleep(time.Second)
				s.set(30*time.Second, err)
			}
		}
		if _, ok := m.Rate(); ok {
			t.Error("a rate without a measure")
		}
		minute(nil)
		if rate, ok := m.Rate(); !ok || math.Abs(rate-30) > 1 {
			t.Errorf("%v %v", rate, ok)
		}
		minute(errors.New("connection refused"))
		if rate, ok := m.Rate(); !ok || math.Abs(rate-30) > 1 {
			t.Errorf("the store is away: %v %v", rate, ok)
		}
		minute(nil)
		if rate, ok := m.Rate(); !ok || math.Abs(rate-30) > 1 {
			t.Errorf("the store is back: %v %v", rate, ok)
		}
		if s.reads > 3*60/5+2 {
			t.Errorf("%d reads in 3 minutes", s.reads)
		}
		stop()
		<-ended
		time.Sleep(throughputWindow + time.Second)
		if _, ok := m.Rate(); ok {
			t.Error("a rate of long ago")
		}
	})
}
