// Package cpu is the reference backend of asr/ml: plain Go, built everywhere, and the meaning of every operation.
//
// Rows are cut into blocks that a fixed pool of goroutines works through; the weights of linear layers are packed once, at upload, into
// panels of four outputs, so that the inner loops read memory in order. Matrices in bfloat16 stay so in memory and are widened a
// panel at a time. After the first run of a shape no operation allocates.
//
// The package may not know a model, and nothing but the standard library and asr/ml.
package cpu

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/aviary-asr/aviary/asr/ml"
)

// Options configures a backend. The zero value is the default.
type Options struct {
	// Threads is the number of goroutines that compute, the caller's included. 0 is GOMAXPROCS.
	Threads int
	// MaxBytes bounds what weights and buffers may take together; beyond it uploads and reservations fail with ml.ErrOutOfMemory.
	// 0 is no bound.
	MaxBytes int64
}

// rowBlock is the number of rows that callers are asked to use for wide intermediate results: enough to use every weight
// many times, little enough (4 MiB for 4,096 columns) to stay near the cache.
const rowBlock = 256

// Backend implements ml.Backend. Make one with New and Close it.
type Backend struct {
	pool     *pool
	maxBytes int64
	weights  atomic.Int64 // bytes; Release may come from any goroutine
	buffers  atomic.Int64
	scratch  int64

	// The arguments of the operation in progress. They live here so that starting one does not allocate.
	linear    linearTask
	norm      normTask
	attention attentionTask
	conv      convTask
	stem      stemTask
	conv2d    conv2DTask

	hidden buffer // of Joint: ReLU(f+p)
	gates  buffer // of LSTM
}

// New starts the pool.
func New(o Options) *Backend {
	threads := o.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	b := &Backend{pool: newPool(threads), maxBytes: o.MaxBytes}
	b.scratch = int64(threads) * workerBytes
	return b
}

// Close ends the pool's goroutines. It may be called more than once.
func (b *Backend) Close() error {
	b.pool.close()
	return nil
}

// Info describes the backend.
func (b *Backend) Info() ml.Info {
	return ml.Info{Name: "cpu", DTypes: []ml.DType{ml.Float32, ml.BFloat16}, RowBlock: rowBlock, PadRows: panelCols}
}

// Threads is the number of goroutines that compute.
func (b *Backend) Threads() int { return len(b.pool.workers) }

// Memory reports what is held now.
func (b *Backend) Memory() ml.Memory {
	return ml.Memory{WeightBytes: b.weights.Load(), BufferBytes: b.buffers.Load(), ScratchBytes: b.scratch}
}

// admit fails when n more bytes do not fit.
func (b *Backend) admit(n int64) error {
	if held := b.weights.Load() + b.buffers.Load(); b.maxBytes > 0 && held+n > b.maxBytes {
		return fmt.Errorf("cpu: %d bytes with %d of %d in use: %w", n, held, b.maxBytes, ml.ErrOutOfMemory)
	}
	return nil
}

// buffer is a slice of the Go heap.
type buffer struct {
	data  []float32
	owner *Backend // nil for the backend's own
}

// Floats is the buffer's size.
func (b *buffer) Floats() int { return len(b.data) }

// Release hands the memory to the garbage collector.
func (b *buffer) Release() {
	if b.data != nil && b.owner != nil {
		b.owner.buffers.Add(-4 * int64(len(b.data)))
	}
	b.data = nil
}

// Reserve allocates memory for activations.
func (b *Backend) Reserve(floats int) (ml.Buffer, error) {
	if floats < 0 {
		panic(ml.ShapeErrorf("Reserve", "%d floats", floats))
	}
	if err := b.admit(4 * int64(floats)); err != nil {
		return nil, err
	}
	b.buffers.Add(4 * int64(floats))
	return &buffer{data: make([]float32, floats), owner: b}, nil
}

// own grows one of the backend's own buffers to a tensor of rows x cols.
func (b *Backend) own(buf *buffer, rows, cols int) ml.Tensor {
	if n := rows * cols; n > len(buf.data) {
		b.scratch += 4 * int64(n-len(buf.data))
		buf.data = make([]float32, n)
	}
	return ml.NewTensor(buf, 0, rows, cols)
}

// mat is a tensor as the kernels see it.
type mat struct {
	data             []float32
	rows, cols, step int
}

func view(t ml.Tensor) mat {
	if t.Rows == 0 || t.Cols == 0 {
		return mat{rows: t.Rows, cols: t.Cols, step: t.Stride}
	}
	end := t.Offset + (t.Rows-1)*t.Stride + t.Cols
	return mat{data: t.Buf.(*buffer).data[t.Offset:end], rows: t.Rows, cols: t.Cols, step: t.Stride}
}

func (m mat) row(i int) []float32 { return m.data[i*m.step : i*m.step+m.cols : i*m.step+m.cols] }

// Write copies host memory into a tensor.
func (b *Backend) Write(ctx context.Context, dst ml.Tensor, src []float32) error {
	ml.CheckCopy("Write", dst, len(src))
	if err := ctx.Err(); err != nil {
		return err
	}
	m := view(dst)
	for i := range m.rows {
		copy(m.row(i), src[i*m.cols:])
	}
	return nil
}

// Read copies a tensor into host memory.
func (b *Backend) Read(ctx context.Context, dst []float32, src ml.Tensor) error {
	ml.CheckCopy("Read", src, len(dst))
	if err := ctx.Err(); err != nil {
		return err
	}
	m := view(src)
	for i := range m.rows {
		copy(dst[i*m.cols:(i+1)*m.cols], m.row(i))
	}
	return nil
}
