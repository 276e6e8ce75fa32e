package cpu

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/mltest"
)

// TestConformance holds the backend against the definitions, on one thread and on several, more than there are cores included.
func TestConformance(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		t.Run(strings.Repeat("|", threads), func(t *testing.T) {
			mltest.Run(t, mltest.Config{Open: func(testing.TB) ml.Backend { return New(Options{Threads: threads}) }})
		})
	}
}

func TestThreads(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	if got := b.Threads(); got != runtime.GOMAXPROCS(0) {
		t.Errorf("%d threads by default, want GOMAXPROCS", got)
	}
}

// TestExp holds exp against math.Exp over its whole range.
func TestExp(t *testing.T) {
	worst := 0.0
	for x := float32(-86.9); x < 88.7; x += 0.0037 {
		want := math.Exp(float64(x))
		worst = max(worst, math.Abs(float64(exp(x))-want)/want)
	}
	if worst > 2e-7 {
		t.Errorf("relative error %g", worst)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct{ x, want float32 }{{0, 1}, {-88, 0}, {-inf, 0}, {89, inf}, {inf, inf}} {
		if got := exp(c.x); got != c.want {
			t.Errorf("exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if got := exp(nan); got == got {
		t.Errorf("exp(NaN) = %v", got)
	}
}

// TestNoAllocation: once warm, no operation of a block allocates.
func TestNoAllocation(t *testing.T) {
	for _, threads := range []int{1, 3} {
		s := newBlock(t, threads, 300, 64, 4, ml.BFloat16)
		if n := testing.AllocsPerRun(3, func() { s.run(t) }); n > 0 {
			t.Errorf("%d threads: %v allocations per block", threads, n)
		}
	}
}

// TestThreadsDoNotChangeResults: the order of all sums is fixed by the tiles, not by who computes them.
func TestThreadsDoNotChangeResults(t *testing.T) {
	var want []float32
	for _, threads := range []int{1, 2, 7} {
		s := newBlock(t, threads, 200, 48, 3, ml.Float32)
		s.run(t)
		got := make([]float32, s.x.Rows*s.x.Cols)
		if err := s.b.Read(t.Context(), got, s.x); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d threads give other bits than one", threads)
		}
	}
}

func TestMaxBytes(t *testing.T) {
	b := New(Options{Threads: 1, MaxBytes: 4000})
	defer b.Close()
	buf, err := b.Reserve(900)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(101); !errors.Is(err, ml.ErrOutOfMemory) {
		t.Errorf("a reservation beyond the bound: %v", err)
	}
	spec := ml.MatrixSpec{Rows: 10, Cols: 11, DType: ml.Float32, Use: ml.UseLinear}
	if _, err := b.Matrix(spec, make([]float32, 110)); !errors.Is(err, ml.ErrOutOfMemory) {
		t.Errorf("a matrix beyond the bound: %v", err)
	}
	if _, err := b.Param([]int{101}, make([]float32, 101)); !errors.Is(err, ml.ErrOutOfMemory) {
		t.Errorf("a parameter beyond the bound: %v", err)
	}
	buf.Release()
	if _, err := b.Reserve(1000); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// brokenTask panics in one of its blocks.
type brokenTask struct{}

func (brokenTask) block(_ *job, _ *worker, i int) {
	if i == 3 {
		panic("broken")
	}
}

// TestPanicReachesCaller: a mistake in a kernel comes out on the caller's goroutine, whichever found it, and the pool lives on.
func TestPanicReachesCaller(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for range 20 {
		func() {
			defer func() {
				err, ok := recover().(*workerPanic)
				if !ok || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "brokenTask") {
					t.Errorf("recovered %v", err)
				}
			}()
			_ = p.run(t.Context(), brokenTask{}, 8, 1<<30) // it panics
		}()
	}
}

// lateTask ends its context in a block.
type lateTask struct {
	cancel context.CancelFunc
	ran    []bool
}

func (l *lateTask) block(_ *job, _ *worker, i int) {
	l.ran[i] = true
	if i == 2 {
		l.cancel()
	}
}

// TestCancelBetweenBlocks: no further block starts after the context has ended.
func TestCancelBetweenBlocks(t *testing.T) {
	p := newPool(1)
	defer p.close()
	ctx, cancel := context.WithCancel(t.Context())
	l := &lateTask{cancel: cancel, ran: make([]bool, 10)}
	if err := p.run(ctx, l, len(l.ran), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if want := []bool{true, true, true, false, false, false, false, false, false, false}; !slices.Equal(l.ran, want) {
		t.Errorf("ran %v", l.ran)
	}
}

// pollContext counts how often it is asked, and ends after a number of questions.
type pollContext struct {
	context.Context //nolint:containedctx // it is a context
	polls, limit    int
}

func (p *pollContext) Err() error {
	if p.polls++; p.polls > p.limit {
		return context.Canceled
	}
	return nil
}

// TestAttentionPollsWithinBlocks: a tile of queries against an hour of keys takes a fifth of a second, so its context is looked at
// between tiles of keys too.
func TestAttentionPollsWithinBlocks(t *testing.T) {
	const n = 2048
	s := newBlock(t, 1, n, 8, 2, ml.Float32)
	ctx := &pollContext{Context: t.Context(), limit: 1 << 30}
	if err := s.b.Attention(ctx, s.z, s.attention); err != nil {
		t.Fatal(err)
	}
	if least := 2 * n / queryRows * n / keyRows; ctx.polls < least {
		t.Errorf("the context was looked at %d times, want %d", ctx.polls, least)
	}
	ctx.polls, ctx.limit = 0, 10
	if err := s.b.Attention(ctx, s.z, s.attention); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if ctx.polls > ctx.limit+5 {
		t.Errorf("the operation went on for %d looks at its context", ctx.polls-ctx.limit)
	}
}
