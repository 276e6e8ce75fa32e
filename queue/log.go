package queue

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// condition logs a lasting trouble once when it begins and once when it is over, however often it is observed.
type condition struct {
	log          *slog.Logger
	begins, over string

	mu    sync.Mutex
	since time.Time // zero while all is well
}

// observe takes the outcome of one try.
func (c *condition) observe(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && c.since.IsZero():
		c.since = time.Now()
		c.log.Warn(c.begins, "err", err)
	case err == nil && !c.since.IsZero():
		c.log.Info(c.over, "lasted_s", time.Since(c.since).Seconds())
		c.since = time.Time{}
	}
}

// lasting says whether the trouble is still there.
func (c *condition) lasting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.since.IsZero()
}

// guard recovers a panic of a function that asynq calls where it does not recover itself: there the whole process would end.
func guard(log *slog.Logger, where string) {
	if p := recover(); p != nil {
		log.Error("recovered a panic", "where", where, "panic", p, "stack", string(debug.Stack()))
	}
}

// asynqLogger passes on what asynq says, one level below where asynq says it: its troubles are about tasks, and a task is only a hint. Each
// kind of message comes at most once a minute, since all lanes of a process would complain about one outage every few seconds.
type asynqLogger struct {
	log *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time // by kind
}

const asynqLogEvery = time.Minute

func newAsynqLogger(log *slog.Logger) *asynqLogger {
	return &asynqLogger{log: log.With("from", "asynq"), last: map[string]time.Time{}}
}

// Debug implements asynq.Logger, as do the others.
func (l *asynqLogger) Debug(args ...any) { l.say(slog.LevelDebug, args) }

// Info is about starting and stopping, which the worker logs itself.
func (l *asynqLogger) Info(args ...any) { l.say(slog.LevelDebug, args) }

// Warn is about a task that was not where asynq expected it.
func (l *asynqLogger) Warn(args ...any) { l.say(slog.LevelInfo, args) }

// Error is mostly about Redis.
func (l *asynqLogger) Error(args ...any) { l.say(slog.LevelWarn, args) }

// Fatal does not end the process, as asynq's own logger would: that is not for a library to decide.
func (l *asynqLogger) Fatal(args ...any) { l.say(slog.LevelError, args) }

func (l *asynqLogger) say(level slog.Level, args []any) {
	defer func() { _ = recover() }() // a panic in a log handler: there is nowhere left to log it
	ctx := context.Background()
	if !l.log.Enabled(ctx, level) {
		return
	}
	text := fmt.Sprint(args...)
	if level > slog.LevelDebug && !l.due(kindOf(text), time.Now()) {
		return
	}
	l.log.Log(ctx, level, text)
}

func (l *asynqLogger) due(kind string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[kind]; ok && now.Sub(last) < asynqLogEvery {
		return false
	}
	l.last[kind] = now
	return true
}

// kindOf is the part of a message before its first variable: asynq has a few dozen of them.
func kindOf(text string) string {
	if i := strings.IndexAny(text, ":=[\""); i >= 0 {
		return text[:i]
	}
	return text
}
