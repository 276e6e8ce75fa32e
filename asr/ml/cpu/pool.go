package cpu

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// task is an operation cut into blocks that may run in any order and at the same time.
type task interface {
	// block computes block i. It polls j.stopped where a block can take more than a few milliseconds.
	block(j *job, w *worker, i int)
}

// job is one operation on its way through the pool.
type job struct {
	ctx    context.Context //nolint:containedctx // lives as long as the operation, and workers get at it through the job
	task   task
	blocks int64
	next   atomic.Int64 // the next block to start
	done   atomic.Int64 // blocks finished
	failed atomic.Pointer[workerPanic]
}

// stopped reports whether the operation is to end early.
func (j *job) stopped() bool { return j.ctx.Err() != nil }

// pool is a fixed set of workers: worker 0 is the goroutine that calls run, the others wait for jobs.
type pool struct {
	workers []*worker
	wake    chan *job
	idle    sync.WaitGroup // helpers of the job in progress
	helpers sync.WaitGroup // goroutines alive
	once    sync.Once
	job     job
}

// workerPanic carries a panic from a helper to the goroutine that called the operation.
type workerPanic struct {
	value any
	stack []byte
}

func (p *workerPanic) Error() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

func newPool(threads int) *pool {
	p := &pool{wake: make(chan *job)}
	for range threads {
		p.workers = append(p.workers, newWorker())
	}
	for _, w := range p.workers[1:] {
		p.helpers.Go(func() {
			for j := range p.wake {
				p.help(j, w)
			}
		})
	}
	return p
}

func (p *pool) close() {
	p.once.Do(func() { close(p.wake) })
	p.helpers.Wait()
}

// smallWork is the number of multiply-adds below which waking a helper costs more than it brings: a wake-up takes about 0.1 ms.
const smallWork = 400_000

// run computes all blocks of t and returns when they are done, or ctx's error when it ended before. work is the number of
// multiply-adds, to decide whether helpers pay.
func (p *pool) run(ctx context.Context, t task, blocks, work int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if blocks == 0 {
		return nil
	}
	j := &p.job
	j.ctx, j.task, j.blocks = ctx, t, int64(blocks)
	j.next.Store(0)
	j.done.Store(0)
	j.failed.Store(nil)
	helpers := 0
	if work >= smallWork {
		helpers = min(len(p.workers), blocks) - 1
	}
	p.idle.Add(helpers)
	for range helpers {
		p.wake <- j
	}
	p.drain(j, p.workers[0])
	p.idle.Wait()
	j.ctx, j.task = nil, nil
	if f := j.failed.Load(); f != nil {
		panic(f)
	}
	if j.done.Load() < j.blocks {
		return ctx.Err()
	}
	return nil
}

func (p *pool) help(j *job, w *worker) {
	defer p.idle.Done()
	p.drain(j, w)
}

// drain works on blocks until there are no more, or the job is stopped.
func (p *pool) drain(j *job, w *worker) {
	defer func() {
		if v := recover(); v != nil {
			j.failed.CompareAndSwap(nil, &workerPanic{v, debug.Stack()})
			j.next.Store(j.blocks)
		}
	}()
	for !j.stopped() {
		i := j.next.Add(1) - 1
		if i >= j.blocks {
			return
		}
		j.task.block(j, w, int(i))
		// A block that was stopped in its middle is not done.
		if j.stopped() {
			return
		}
		j.done.Add(1)
	}
}

// Sizes of a worker's scratch.
const (
	tileRows = 64   // rows of a block of Linear
	tileCols = 64   // packed columns of a block of Linear
	depth    = 1024 // inputs that a block of Linear takes at a time: a panel of them fills half of a 32 KiB L1 cache

	queryRows = 32  // queries of a tile of attention
	keyRows   = 64  // keys of a tile of attention
	headWidth = 128 // per head; wider heads make the scratch grow
)

// workerBytes is the size of a worker's scratch.
const workerBytes = 4 * (tileRows*tileCols + 4*depth + 3*queryRows*headWidth + queryRows + 2*queryRows + 2*keyRows + 2*(keyRows+1))

// worker is the scratch of one goroutine.
type worker struct {
	acc   []float32    // [tileRows][tileCols] sums of Linear
	panel [][4]float32 // [depth] widened weights

	// Attention: queries with either bias, the weighted values, and for each query the maximum and the sum so far.
	qu, qv, out []float32 // [queryRows][head width]
	peak        []float32
	sum         []float64
	scores      [2][]float32 // of two queries against a tile of keys
	positions   [2][]float32 // of two queries against the offsets that occur in the tile
}

func newWorker() *worker {
	w := &worker{
		acc:   make([]float32, tileRows*tileCols),
		panel: make([][4]float32, depth),
		peak:  make([]float32, queryRows),
		sum:   make([]float64, queryRows),
	}
	for i := range 2 {
		w.scores[i] = make([]float32, keyRows)
		w.positions[i] = make([]float32, keyRows+1)
	}
	w.widen(headWidth)
	return w
}

// widen makes room for heads of the given width.
func (w *worker) widen(head int) {
	if n := queryRows * head; n > len(w.qu) {
		w.qu, w.qv, w.out = make([]float32, n), make([]float32, n), make([]float32, n)
	}
}
