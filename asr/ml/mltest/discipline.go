package mltest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aviary-asr/aviary/asr/ml"
)

// testMemory: what is uploaded and reserved is counted, and what is released is no longer.
func testMemory(t *testing.T, s *suite) {
	before := s.Memory()
	var held int64
	var weights []ml.Weight
	for _, d := range s.dtypes() {
		for _, use := range []ml.Use{ml.UseLinear, ml.UseGated, ml.UseRows} {
			spec := ml.MatrixSpec{Rows: 42, Cols: 23, DType: d, Use: use}
			w, _ := s.matrix(t, spec, s.values(spec.Rows*spec.Cols, 1))
			if w.Bytes() < int64(spec.Rows*spec.Cols*d.Size()) || w.Bytes() != s.Info().MatrixBytes(spec) {
				t.Errorf("%+v takes %d bytes; Info says %d", spec, w.Bytes(), s.Info().MatrixBytes(spec))
			}
			held += w.Bytes()
			weights = append(weights, w)
		}
	}
	p := s.param(t, s.values(10, 1), 10)
	held += p.Bytes()
	weights = append(weights, p)
	buf, err := s.Reserve(1000)
	must(t, err)
	now := s.Memory()
	if got := now.WeightBytes - before.WeightBytes; got != held {
		t.Errorf("weights grew by %d bytes, want %d", got, held)
	}
	if got := now.BufferBytes - before.BufferBytes; got < 4000 {
		t.Errorf("buffers grew by %d bytes, want 4000", got)
	}
	if now.Total() != now.WeightBytes+now.BufferBytes+now.ScratchBytes {
		t.Errorf("the total of %+v is %d", now, now.Total())
	}
	for _, w := range weights {
		w.Release()
	}
	buf.Release()
	buf.Release() // harmless
	if got := s.Memory(); got.WeightBytes != before.WeightBytes || got.BufferBytes != before.BufferBytes {
		t.Errorf("after the release %+v is held, before it was %+v", got, before)
	}
}

// operations are one call of each operation that runs on the device, small.
func (s *suite) operations(t *testing.T) map[string]func(context.Context) error {
	const n, in, out = 6, 8, 4
	x, y := s.tensor(t, n, in, s.values(n*in, 1)), s.empty(t, n, out)
	w, _ := s.matrix(t, ml.MatrixSpec{Rows: out, Cols: in, DType: ml.Float32, Use: ml.UseLinear}, s.values(out*in, 1))
	table, _ := s.matrix(t, ml.MatrixSpec{Rows: n, Cols: in, DType: ml.Float32, Use: ml.UseRows}, s.values(n*in, 1))
	same := s.empty(t, n, in)
	norm := ml.Norm{W: s.param(t, s.values(in, 1), in), B: s.param(t, s.values(in, 1), in), Eps: 1e-5}
	attention := s.args(t, s.attentionCase(n, 2, 4, window{-1, -1}, 0))
	filter := ml.Filter{W: s.param(t, s.values(3*in, 1), 3, in), B: norm.B}
	filter2D := ml.Filter{W: s.param(t, s.values(9*out, 1), 9, out), B: s.param(t, s.values(out, 1), out)}
	gates, _ := s.matrix(t, ml.MatrixSpec{Rows: 4 * in, Cols: in, DType: ml.Float32, Use: ml.UseLinear}, s.values(4*in*in, 1))
	lstm := ml.LSTM{WX: gates, WH: gates, B: s.param(t, s.values(4*in, 1), 4*in)}
	h, c := s.tensor(t, n, in, s.values(n*in, 1)), s.tensor(t, n, in, s.values(n*in, 1))
	geometry := ml.Conv2D{InRows: n, InWidth: in, OutRows: n / 2}
	plane := s.empty(t, n/2*in/2, out)
	geometry2 := ml.Conv2D{InRows: n / 2, InWidth: in / 2, OutRows: 2}
	plane2 := s.empty(t, 2*in/4, out)
	return map[string]func(context.Context) error{
		"Write":  func(ctx context.Context) error { return s.Write(ctx, x, make([]float32, n*in)) },
		"Read":   func(ctx context.Context) error { return s.Read(ctx, make([]float32, n*in), x) },
		"Linear": func(ctx context.Context) error { return s.Linear(ctx, y, x, ml.Linear{W: w}, ml.Epilogue{}) },
		"LayerNorm": func(ctx context.Context) error {
			return s.LayerNorm(ctx, same, x, norm)
		},
		"Attention":     func(ctx context.Context) error { return s.Attention(ctx, attention.Q, attention) },
		"DepthwiseConv": func(ctx context.Context) error { return s.DepthwiseConv(ctx, same, x, filter, ml.SiLU) },
		"ConvStem":      func(ctx context.Context) error { return s.ConvStem(ctx, plane, x, filter2D, geometry) },
		"ConvDepthwise2D": func(ctx context.Context) error {
			return s.ConvDepthwise2D(ctx, plane2, plane, filter2D, geometry2)
		},
		"Embed": func(ctx context.Context) error { return s.Embed(ctx, x, table, []int{0, 1, 2, 3, 4, 5}) },
		"LSTM":  func(ctx context.Context) error { return s.LSTM(ctx, h, c, x, lstm) },
		"Joint": func(ctx context.Context) error {
			return s.Joint(ctx, y, x, same, ml.Linear{W: w}, 3, make([]ml.Choice, n))
		},
		"Argmax": func(ctx context.Context) error { return s.Argmax(ctx, make([]int, n), x) },
	}
}

// testCanceled: no operation starts under a context that has ended, and the backend works on afterwards.
func testCanceled(t *testing.T, s *suite) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ops := s.operations(t)
	for name, op := range ops {
		if err := op(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a canceled context: %v", name, err)
		}
	}
	before := s.Memory()
	for name, op := range ops {
		if err := op(t.Context()); err != nil && !errors.Is(err, ml.ErrNotFinite) {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
	for range 2 {
		for _, op := range ops {
			_ = op(t.Context()) // only the memory is looked at
		}
	}
	if after := s.Memory(); after.BufferBytes != before.BufferBytes || after.WeightBytes != before.WeightBytes {
		t.Errorf("operations allocated: %+v before, %+v after", before, after)
	}
}

// stopWithin is how soon a run must end after its context.
const stopWithin = 250 * time.Millisecond

// testCancelLong stops full attention over an hour, and a linear layer of that length, in the middle of the operation.
func testCancelLong(t *testing.T, s *suite) {
	const heads, d = 2, 32
	n := s.config.Long
	buf, err := s.Reserve(n * heads * d)
	must(t, err)
	defer buf.Release()
	x := ml.NewTensor(buf, 0, n, heads*d)
	must(t, s.Write(t.Context(), x, s.values(n*heads*d, 1)))
	positions, err := s.Reserve((2*n - 1) * heads * d)
	must(t, err)
	defer positions.Release()
	r := ml.NewTensor(positions, 0, 2*n-1, heads*d)
	out, err := s.Reserve(n * heads * d)
	must(t, err)
	defer out.Release()
	dst := ml.NewTensor(out, 0, n, heads*d)
	bias := s.param(t, s.values(heads*d, 1), heads, d)
	attention := ml.RelAttention{
		Q: x, K: x, V: x, R: r, MinOffset: 1 - n, U: bias, V0: bias, Heads: heads, Left: -1, Right: -1,
	}
	w, _ := s.matrix(t, ml.MatrixSpec{Rows: heads * d, Cols: heads * d, DType: ml.Float32, Use: ml.UseLinear}, s.values(heads*d*heads*d, 1))
	s.stops(t, "attention", func(ctx context.Context) error { return s.finish(ctx, s.Attention(ctx, dst, attention), dst) })
	s.stops(t, "linear", func(ctx context.Context) error {
		for range 10_000 { // one call ends too soon to be caught in the middle
			if err := s.Linear(ctx, dst, x, ml.Linear{W: w}, ml.Epilogue{Act: ml.SiLU}); err != nil {
				return err
			}
		}
		return s.finish(ctx, nil, dst)
	})
}

// finish waits for a device that works on its own.
func (s *suite) finish(ctx context.Context, err error, x ml.Tensor) error {
	if err != nil {
		return err
	}
	return s.Read(ctx, make([]float32, x.Cols), x.RowRange(0, 1))
}

// stops cancels op while it runs and holds the time until it returns. The machine may be busy with other things: the best of five counts.
func (s *suite) stops(t *testing.T, what string, op func(context.Context) error) {
	t.Helper()
	best := time.Hour
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		var asked time.Time
		timer := time.AfterFunc(20*time.Millisecond, func() {
			asked = time.Now()
			cancel()
		})
		err := op(ctx)
		took := time.Since(asked)
		stopped := ctx.Err() != nil
		timer.Stop()
		cancel()
		if !stopped {
			t.Fatalf("%s was over before it was canceled", what)
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v, want context.Canceled", what, err)
		}
		if best = min(best, took); best <= stopWithin {
			return
		}
	}
	t.Errorf("%s: stopped %v after its context, the limit is %v", what, best, stopWithin)
}

// testShapes: mistakes in model code panic with a ShapeError.
func testShapes(t *testing.T, s *suite) {
	x, y := s.empty(t, 3, 4), s.empty(t, 3, 5)
	w, _ := s.matrix(t, ml.MatrixSpec{Rows: 5, Cols: 4, DType: ml.Float32, Use: ml.UseLinear}, s.values(20, 1))
	rows, _ := s.matrix(t, ml.MatrixSpec{Rows: 5, Cols: 4, DType: ml.Float32, Use: ml.UseRows}, s.values(20, 1))
	gated, _ := s.matrix(t, ml.MatrixSpec{Rows: 10, Cols: 4, DType: ml.Float32, Use: ml.UseGated}, s.values(40, 1))
	four, five := s.param(t, s.values(4, 1), 4), s.param(t, s.values(5, 1), 5)
	taps := s.param(t, s.values(8, 1), 2, 4)
	ctx := t.Context()
	attention := s.args(t, s.attentionCase(3, 2, 2, window{-1, -1}, 0))
	for name, op := range map[string]func() error{
		"tensor past its buffer":  func() error { ml.NewTensor(x.Buf, 1, 3, 4); return nil },
		"rows past the end":       func() error { x.RowRange(1, 4); return nil },
		"columns past the end":    func() error { x.ColRange(3, 5); return nil },
		"reshape of another size": func() error { x.Reshape(5, 2); return nil },
		"short upload": func() error {
			_, err := s.Matrix(ml.MatrixSpec{Rows: 2, Cols: 2, DType: ml.Float32, Use: ml.UseLinear}, nil)
			return err
		},
		"short parameter":             func() error { _, err := s.Param([]int{2}, []float32{1}); return err },
		"write of too little":         func() error { return s.Write(ctx, x, make([]float32, 11)) },
		"linear input too narrow":     func() error { return s.Linear(ctx, y, y, ml.Linear{W: w}, ml.Epilogue{}) },
		"linear output too narrow":    func() error { return s.Linear(ctx, x, x, ml.Linear{W: w}, ml.Epilogue{}) },
		"linear bias too short":       func() error { return s.Linear(ctx, y, x, ml.Linear{W: w, B: four}, ml.Epilogue{}) },
		"linear residual too narrow":  func() error { return s.Linear(ctx, y, x, ml.Linear{W: w}, ml.Epilogue{Residual: x}) },
		"gate without GLU":            func() error { return s.Linear(ctx, s.empty(t, 3, 10), x, ml.Linear{W: gated}, ml.Epilogue{}) },
		"GLU without gate":            func() error { return s.Linear(ctx, s.empty(t, 3, 2), x, ml.Linear{W: w}, ml.Epilogue{Act: ml.GLU}) },
		"linear with a lookup matrix": func() error { return s.Linear(ctx, y, x, ml.Linear{W: rows}, ml.Epilogue{}) },
		"lookup in a linear matrix":   func() error { return s.Embed(ctx, x, w, []int{0, 1, 2}) },
		"lookup past the end":         func() error { return s.Embed(ctx, x, rows, []int{0, 1, 5}) },
		"norm of another width":       func() error { return s.LayerNorm(ctx, x, x, ml.Norm{W: five, B: five}) },
		"even number of taps":         func() error { return s.DepthwiseConv(ctx, s.empty(t, 3, 4), x, ml.Filter{W: taps, B: four}, ml.None) },
		"missing offsets": func() error {
			a := attention
			a.R = a.R.RowRange(1, a.R.Rows)
			return s.Attention(ctx, a.Q, a)
		},
		"attention over its keys": func() error { return s.Attention(ctx, attention.K, attention) },
		"joint of other rows":     func() error { return s.Joint(ctx, y, x, x, ml.Linear{W: w}, 3, make([]ml.Choice, 2)) },
	} {
		if v := panics(op); v == nil {
			t.Errorf("%s: no panic", name)
		} else if _, ok := v.(*ml.ShapeError); !ok {
			t.Errorf("%s: panic with %T %v, want a ShapeError", name, v, v)
		}
	}
}

// panics returns what op panics with.
func panics(op func() error) (v any) {
	defer func() { v = recover() }()
	_ = op() // only the panic counts
	return nil
}
