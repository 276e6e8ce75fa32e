package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aviary-asr/aviary"
)

// Leader makes one of all processes do what needs doing once: it runs parts (dispatcher, sweeper, housekeeper) while its holder leads by the store. That is
// for economy and fairness. Two leaders at once, as after a clock that stood still, do nothing wrong.
type Leader struct {
	store  aviary.Dispatching
	holder string
	term   time.Duration
	log    *slog.Logger

	reigning  atomic.Pointer[context.Context] // of the parts, in the latest term
	storeAway condition
}

// NewLeader makes a leader; Run starts it. holder is this process, unique among all that share the store.
func NewLeader(store aviary.Dispatching, holder string, term time.Duration, log *slog.Logger) (*Leader, error) {
	if holder == "" || term <= 0 {
		return nil, fmt.Errorf("queue: a leader needs a holder and a positive term, not %q and %v", holder, term)
	}
	return &Leader{
		store: store, holder: holder, term: term, log: log,
		storeAway: condition{log: log, begins: "the store does not say who leads", over: "the store says who leads again"},
	}, nil
}

// Leads says whether this process leads now. It does not once its term is over, whatever its parts and the store still do.
func (l *Leader) Leads() bool {
	reigning := l.reigning.Load()
	return reigning != nil && (*reigning).Err() == nil
}

// resignFor bounds giving up the lead when the process ends.
const resignFor = 3 * time.Second

// Why a term ended. They are causes of the parts' context.
var (
	errTermOver  = errors.New("the term may be over, and was not renewed")
	errSucceeded = errors.New("another process leads")
)

// Run leads whenever it can, until ctx ends. Each time, the parts run with a context that ends with the term; when they have returned, it tries again. When ctx
// ends it resigns, so that a successor need not wait for the end of the term.
func (l *Leader) Run(ctx context.Context, parts ...func(context.Context)) {
	holds := false // or may: an answer was lost
	for ctx.Err() == nil {
		asked := time.Now()
		leads, err := l.ask(ctx, l.term)
		holds = leads || err != nil
		if leads {
			l.reign(ctx, asked, parts)
		}
		// Others may have waited for a term to end, too: who asks more often does not win more often.
		sleep(ctx, min(l.term/3, time.Second), nil)
	}
	if holds {
		l.resign(ctx)
	}
}

// ask takes or renews the lead. The store has at most for to answer.
func (l *Leader) ask(ctx context.Context, atMost time.Duration) (leads bool, err error) {
	asking, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	leads, err = l.store.Lead(asking, l.holder, l.term)
	if ctx.Err() == nil { // a failure by our own end says nothing about the store
		l.storeAway.observe(err)
	}
	return leads && err == nil, err
}

// reign runs the parts until the term is over or ctx ends. The term is counted from before it was asked for, by our own clock, so that it ends here
// before it ends in the store.
func (l *Leader) reign(ctx context.Context, asked time.Time, parts []func(context.Context)) {
	reigning, end := context.WithCancelCause(ctx)
	defer end(nil)
	// A timer of its own ends the term, whatever the store does with a call.
	over := time.AfterFunc(time.Until(asked.Add(l.term)), func() { end(errTermOver) })
	defer over.Stop()
	l.reigning.Store(&reigning)
	l.log.Info("this process leads", "holder", l.holder)
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() { part(reigning) })
	}
	l.renew(reigning, end, over)
	if cause := context.Cause(reigning); ctx.Err() == nil {
		l.log.Warn("this process no longer leads", "holder", l.holder, "err", cause)
	} else {
		l.log.Info("this process no longer leads", "holder", l.holder)
	}
	l.awaitParts(&running)
}

// awaitParts waits for the parts to return: each may run once at a time. Until then this process cannot lead again, so that a part that takes as long as a whole
// term is told of.
func (l *Leader) awaitParts(running *sync.WaitGroup) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		running.Wait()
	}()
	if waitFor(returned, l.term) {
		return
	}
	l.log.Error("a part of the leader does not return; this process cannot lead before it does", "holder", l.holder, "for_s", l.term.Seconds())
	<-returned
	l.log.Warn("the parts of the leader have returned", "holder", l.holder)
}

// renew renews the term at a third of it, and more often while that fails, until ctx ends or another process leads.
func (l *Leader) renew(ctx context.Context, end context.CancelCauseFunc, over *time.Timer) {
	pause := l.term / 3
	for {
		sleep(ctx, pause, nil)
		if ctx.Err() != nil {
			return
		}
		asked := time.Now()
		leads, err := l.ask(ctx, l.term/3)
		switch {
		case err != nil:
			pause = l.term / 12
		case !leads:
			end(errSucceeded)
			return
		case !over.Stop():
			return // the answer came too late
		default:
			over.Reset(time.Until(asked.Add(l.term)))
			pause = l.term / 3
		}
	}
}

// resign gives the lead up.
func (l *Leader) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignFor)
	defer cancel()
	if err := l.store.Resign(ctx, l.holder); err != nil {
		l.log.Warn("the lead was not given up; a successor waits for the end of the term", "holder", l.holder, "err", err)
	}
}
