package queue

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func TestTicketRoundTrip(t *testing.T) {
	t.Parallel()
	want := aviary.Ticket{JobID: "job_01J", Generation: 7, Priority: aviary.PriorityBulk}
	task, err := newTask(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseTask(task.Payload()); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if id := taskID(want); id != "job_01J.7" {
		t.Errorf("the task's id is %s", id)
	}
}

func FuzzParseTask(f *testing.F) {
	f.Add([]byte(`{"job":"job_1","generation":1,"priority":"bulk"}`))
	f.Add([]byte(`{"job":"","generation":-1,"priority":"x"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := parseTask(p)
		if err != nil {
			return
		}
		task, err := newTask(got)
		if err != nil {
			t.Fatalf("%+v cannot be made a task: %v", got, err)
		}
		if again, err := parseTask(task.Payload()); err != nil || again != got {
			t.Errorf("%+v came back as %+v, %v", got, again, err)
		}
	})
}

func TestQueuesRankAllClasses(t *testing.T) {
	t.Parallel()
	ranks := queues()
	if len(ranks) != len(aviary.Priorities()) || ranks["interactive"] <= ranks["bulk"] || ranks["bulk"] < 1 {
		t.Errorf("ranks: %v", ranks)
	}
}

func TestAsynqLogger(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	l := newAsynqLogger(rec.logger())
	for range 3 {
		l.Debug("Forwarder done")
		l.Info("Starting processing")
		l.Warn("Could not remove task id=a.1 type=x")
		l.Warn("Could not remove task id=b.1 type=x")
		l.Error("Dequeue error: refused")
		l.Fatal("nothing ends")
	}
	for message, want := range map[string]int{
		"Forwarder done": 3, "Starting processing": 3, "Could not remove task id=a.1 type=x": 1, "Could not remove task id=b.1 type=x": 0,
		"Dequeue error: refused": 1, "nothing ends": 1,
	} {
		if got := rec.count(message); got != want {
			t.Errorf("%q came %d times, want %d", message, got, want)
		}
	}
	if !l.due("Dequeue error", time.Now().Add(asynqLogEvery)) {
		t.Error("a kind of message comes only once")
	}
}

func TestAsynqLoggerOutlivesAPanic(t *testing.T) {
	t.Parallel()
	l := newAsynqLogger(slog.New(panicHandler{newRecorder(t)}))
	l.Error("Dequeue error")
}

// panicHandler is a log handler with a fault.
type panicHandler struct{ slog.Handler }

func (panicHandler) Enabled(_ context.Context, _ slog.Level) bool  { return true }
func (panicHandler) Handle(_ context.Context, _ slog.Record) error { panic("handler") }
func (h panicHandler) WithAttrs([]slog.Attr) slog.Handler          { return h }
