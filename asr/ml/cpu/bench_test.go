package cpu

import (
	"fmt"
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
)

// block is the arithmetic of one Conformer block on random weights: what an encoder does to n frames per layer.
type block struct {
	b                 *Backend
	x, z, hidden, qkv ml.Tensor
	norm              ml.Norm
	up, down          ml.Linear
	in, out           ml.Linear
	glu, point        ml.Linear
	filter            ml.Filter
	attention         ml.RelAttention
}

func newBlock(tb testing.TB, threads, n, width, heads int, d ml.DType) *block {
	tb.Helper()
	b := New(Options{Threads: threads})
	tb.Cleanup(func() { _ = b.Close() })
	s := &block{b: b}
	seed := uint32(7)
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			seed = seed*1664525 + 1013904223
			v[i] = (float32(seed>>8)/(1<<24) - 0.5) * 0.2
		}
		return v
	}
	matrix := func(rows, cols int, use ml.Use) ml.Linear {
		w, err := b.Matrix(ml.MatrixSpec{Rows: rows, Cols: cols, DType: d, Use: use}, random(rows*cols))
		if err != nil {
			tb.Fatal(err)
		}
		return ml.Linear{W: w}
	}
	param := func(shape ...int) ml.Weight {
		n := 1
		for _, d := range shape {
			n *= d
		}
		w, err := b.Param(shape, random(n))
		if err != nil {
			tb.Fatal(err)
		}
		return w
	}
	tensor := func(rows, cols int) ml.Tensor {
		buf, err := b.Reserve(rows * cols)
		if err != nil {
			tb.Fatal(err)
		}
		t := ml.NewTensor(buf, 0, rows, cols)
		if err := b.Write(tb.Context(), t, random(rows*cols)); err != nil {
			tb.Fatal(err)
		}
		return t
	}
	s.x, s.z, s.hidden, s.qkv = tensor(n, width), tensor(n, width), tensor(n, 4*width), tensor(n, 3*width)
	s.norm = ml.Norm{W: param(width), B: param(width), Eps: 1e-5}
	s.up, s.down = matrix(4*width, width, ml.UseLinear), matrix(width, 4*width, ml.UseLinear)
	s.in, s.out = matrix(3*width, width, ml.UseLinear), matrix(width, width, ml.UseLinear)
	s.glu, s.point = matrix(2*width, width, ml.UseGated), matrix(width, width, ml.UseLinear)
	s.filter = ml.Filter{W: param(9, width), B: param(width)}
	s.attention = ml.RelAttention{
		Q: s.qkv.ColRange(0, width), K: s.qkv.ColRange(width, 2*width), V: s.qkv.ColRange(2*width, 3*width),
		R: tensor(2*n-1, width), MinOffset: 1 - n, U: param(heads, width/heads), V0: param(heads, width/heads),
		Heads: heads, Left: -1, Right: -1,
	}
	return s
}

func (s *block) run(tb testing.TB) {
	ctx := tb.Context()
	step := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	residual := ml.Epilogue{Residual: s.x}
	step(s.b.LayerNorm(ctx, s.z, s.x, s.norm))
	step(s.b.Linear(ctx, s.hidden, s.z, s.up, ml.Epilogue{Act: ml.SiLU}))
	step(s.b.Linear(ctx, s.x, s.hidden, s.down, ml.Epilogue{Residual: s.x, Scale: 0.5}))
	step(s.b.LayerNorm(ctx, s.z, s.x, s.norm))
	step(s.b.Linear(ctx, s.qkv, s.z, s.in, ml.Epilogue{}))
	step(s.b.Attention(ctx, s.attention.Q, s.attention))
	step(s.b.Linear(ctx, s.x, s.attention.Q, s.out, residual))
	step(s.b.LayerNorm(ctx, s.z, s.x, s.norm))
	step(s.b.Linear(ctx, s.attention.K, s.z, s.glu, ml.Epilogue{Act: ml.GLU}))
	step(s.b.DepthwiseConv(ctx, s.z, s.attention.K, s.filter, ml.SiLU))
	step(s.b.Linear(ctx, s.x, s.z, s.point, residual))
}

// BenchmarkLinear times the encoder's matrix products and reports the rate.
func BenchmarkLinear(b *testing.B) {
	for _, d := range []ml.DType{ml.Float32, ml.BFloat16} {
		for _, sh := range []struct{ rows, in, out int }{{375, 1024, 4096}, {375, 4096, 1024}, {375, 1024, 1024}, {1, 640, 8198}} {
			b.Run(fmt.Sprintf("%v/%dx%dx%d", d, sh.rows, sh.in, sh.out), func(b *testing.B) {
				c := New(Options{})
				defer c.Close()
				w, err := c.Matrix(ml.MatrixSpec{Rows: sh.out, Cols: sh.in, DType: d, Use: ml.UseLinear}, make([]float32, sh.out*sh.in))
				if err != nil {
					b.Fatal(err)
				}
				buf, err := c.Reserve(sh.rows * (sh.in + sh.out))
				if err != nil {
					b.Fatal(err)
				}
				x, y := ml.NewTensor(buf, 0, sh.rows, sh.in), ml.NewTensor(buf, sh.rows*sh.in, sh.rows, sh.out)
				for b.Loop() {
					if err := c.Linear(b.Context(), y, x, ml.Linear{W: w}, ml.Epilogue{}); err != nil {
						b.Fatal(err)
					}
				}
				flop := 2 * float64(sh.rows) * float64(sh.in) * float64(sh.out)
				b.ReportMetric(flop*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkAttention times the encoder's attention on 30 s of audio, full and local.
func BenchmarkAttention(b *testing.B) {
	for _, window := range []int{-1, 128} {
		b.Run(fmt.Sprintf("window %d", window), func(b *testing.B) {
			s := newBlock(b, 0, 375, 1024, 8, ml.Float32)
			s.attention.Left, s.attention.Right = window, window
			for b.Loop() {
				if err := s.b.Attention(b.Context(), s.z, s.attention); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBlock times a block of the 0.6B model on 30 s of audio.
func BenchmarkBlock(b *testing.B) {
	for _, d := range []ml.DType{ml.Float32, ml.BFloat16} {
		b.Run(d.String(), func(b *testing.B) {
			s := newBlock(b, 0, 375, 1024, 8, d)
			for b.Loop() {
				s.run(b)
			}
		})
	}
}
