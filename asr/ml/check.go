package ml

import "fmt"

// ShapeError is the value of the panic after a mistake in model code.
type ShapeError struct {
	Op     string
	Detail string
}

// Error names the operation and what does not fit.
func (e *ShapeError) Error() string { return "ml." + e.Op + ": shapes do not fit: " + e.Detail }

// ShapeErrorf makes a ShapeError.
func ShapeErrorf(op, format string, args ...any) *ShapeError {
	return &ShapeError{Op: op, Detail: fmt.Sprintf(format, args...)}
}

// String shows a tensor's shape, for errors.
func (t Tensor) String() string { return fmt.Sprintf("[%d, %d]", t.Rows, t.Cols) }

// The Check functions hold the arguments of an operation against its definition; every backend calls them first, so that
// a mistake shows the same way everywhere. They do not allocate unless they panic.

func shape2(w Weight) (int, int) {
	s := w.Shape()
	if len(s) != 2 {
		panic(ShapeErrorf("weight", "%v is not a matrix", s))
	}
	return s[0], s[1]
}

func vector(op, what string, w Weight, n int) {
	if s := w.Shape(); len(s) != 1 || s[0] != n {
		panic(ShapeErrorf(op, "%s is %v and should be [%d]", what, s, n))
	}
}

func tensor(op, what string, t Tensor, rows, cols int) {
	if t.Buf == nil || t.Rows != rows || t.Cols != cols {
		panic(ShapeErrorf(op, "%s is %v and should be [%d, %d]", what, t, rows, cols))
	}
	if rows > 0 && cols > 0 && (t.Offset < 0 || t.Stride < cols || t.Offset+(rows-1)*t.Stride+cols > t.Buf.Floats()) {
		panic(ShapeErrorf(op, "%s leaves its buffer", what))
	}
}

func apart(op string, dst, src Tensor) {
	if dst.Overlaps(src) {
		panic(ShapeErrorf(op, "the output overlaps an input"))
	}
}

// CheckMatrix holds the data of an upload against its shape.
func CheckMatrix(s MatrixSpec, data []float32) {
	const op = "Matrix"
	if s.Rows <= 0 || s.Cols <= 0 || len(data) != s.Rows*s.Cols {
		panic(ShapeErrorf(op, "%d values for [%d, %d]", len(data), s.Rows, s.Cols))
	}
	if s.DType != Float32 && s.DType != BFloat16 {
		panic(ShapeErrorf(op, "no such format: %d", s.DType))
	}
	if s.Use < UseLinear || s.Use > UseRows || s.Use == UseGated && s.Rows%2 != 0 {
		panic(ShapeErrorf(op, "[%d, %d] cannot be used as %d", s.Rows, s.Cols, s.Use))
	}
}

// CheckParam holds the data of an upload against its shape.
func CheckParam(shape []int, data []float32) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	if n != len(data) || n == 0 {
		panic(ShapeErrorf("Param", "%d values for %v", len(data), shape))
	}
}

// CheckCopy holds a tensor against the host memory that is copied to it or from it.
func CheckCopy(op string, t Tensor, host int) {
	tensor(op, "the tensor", t, t.Rows, t.Cols)
	if t.Rows*t.Cols != host {
		panic(ShapeErrorf(op, "%v and %d values", t, host))
	}
}

// CheckLinear checks the arguments of Linear.
func CheckLinear(dst, x Tensor, l Linear, e Epilogue) {
	const op = "Linear"
	rows, in := shape2(l.W)
	out := rows
	if e.Act == GLU {
		out = rows / 2
	}
	tensor(op, "x", x, x.Rows, in)
	tensor(op, "dst", dst, x.Rows, out)
	if l.B != nil {
		vector(op, "the bias", l.B, rows)
	}
	if !e.Residual.IsZero() {
		tensor(op, "the residual", e.Residual, x.Rows, out)
		if !dst.Same(e.Residual) {
			apart(op, dst, e.Residual)
		}
	}
	apart(op, dst, x)
}

// CheckLayerNorm checks the arguments of LayerNorm.
func CheckLayerNorm(dst, x Tensor, n Norm) {
	const op = "LayerNorm"
	tensor(op, "x", x, x.Rows, x.Cols)
	tensor(op, "dst", dst, x.Rows, x.Cols)
	vector(op, "the weight", n.W, x.Cols)
	vector(op, "the bias", n.B, x.Cols)
	if !dst.Same(x) {
		apart(op, dst, x)
	}
}

// CheckAttention checks the arguments of Attention, and that R has every offset that can occur.
func CheckAttention(dst Tensor, a RelAttention) {
	const op = "Attention"
	n, width := a.Q.Rows, a.Q.Cols
	if a.Heads <= 0 || width == 0 || width%a.Heads != 0 {
		panic(ShapeErrorf(op, "%d heads on a width of %d", a.Heads, width))
	}
	tensor(op, "Q", a.Q, n, width)
	tensor(op, "K", a.K, n, width)
	tensor(op, "V", a.V, n, width)
	tensor(op, "dst", dst, n, width)
	tensor(op, "R", a.R, a.R.Rows, width)
	for _, w := range [2]Weight{a.U, a.V0} {
		if h, d := shape2(w); h != a.Heads || d != width/a.Heads {
			panic(ShapeErrorf(op, "a position bias is [%d, %d] and should be [%d, %d]", h, d, a.Heads, width/a.Heads))
		}
	}
	if lo, hi := a.Offsets(n); n > 0 && (lo < a.MinOffset || hi >= a.MinOffset+a.R.Rows) {
		panic(ShapeErrorf(op, "R has the offsets %d to %d, and %d to %d occur", a.MinOffset, a.MinOffset+a.R.Rows-1, lo, hi))
	}
	if !dst.Same(a.Q) {
		apart(op, dst, a.Q)
	}
	apart(op, dst, a.K)
	apart(op, dst, a.V)
	apart(op, dst, a.R)
}

// Offsets are the smallest and the largest i-j among n positions that the window allows.
func (a RelAttention) Offsets(n int) (lo, hi int) {
	lo, hi = 1-n, n-1
	if a.Right >= 0 {
		lo = max(lo, -a.Right)
	}
	if a.Left >= 0 {
		hi = min(hi, a.Left)
	}
	return lo, hi
}

// CheckDepthwiseConv checks the arguments of DepthwiseConv.
func CheckDepthwiseConv(dst, x Tensor, f Filter, act Activation) {
	const op = "DepthwiseConv"
	k, c := shape2(f.W)
	if k%2 == 0 || act == GLU {
		panic(ShapeErrorf(op, "%d taps, activation %d", k, act))
	}
	tensor(op, "x", x, x.Rows, c)
	tensor(op, "dst", dst, x.Rows, c)
	vector(op, "the bias", f.B, c)
	apart(op, dst, x)
}

// CheckConv2D checks the arguments of ConvStem and ConvDepthwise2D; rows and cols are x's.
func CheckConv2D(op string, dst, x Tensor, f Filter, g Conv2D, rows, cols int) {
	k, c := shape2(f.W)
	if k != 9 || g.InWidth <= 0 || g.OutRows < 0 {
		panic(ShapeErrorf(op, "%d taps on a width of %d", k, g.InWidth))
	}
	tensor(op, "x", x, rows, cols)
	tensor(op, "dst", dst, g.OutRows*g.OutWidth(), c)
	vector(op, "the bias", f.B, c)
	apart(op, dst, x)
}

// CheckEmbed checks the arguments of Embed.
func CheckEmbed(dst Tensor, table Weight, ids []int) {
	const op = "Embed"
	rows, width := shape2(table)
	tensor(op, "dst", dst, len(ids), width)
	for _, id := range ids {
		if id < 0 || id >= rows {
			panic(ShapeErrorf(op, "row %d of %d", id, rows))
		}
	}
}

// CheckLSTM checks the arguments of LSTM.
func CheckLSTM(h, c, x Tensor, l LSTM) {
	const op = "LSTM"
	gates, in := shape2(l.WX)
	gates2, hidden := shape2(l.WH)
	if gates != 4*hidden || gates2 != gates {
		panic(ShapeErrorf(op, "%d and %d gates for a width of %d", gates, gates2, hidden))
	}
	vector(op, "the bias", l.B, gates)
	tensor(op, "x", x, x.Rows, in)
	tensor(op, "h", h, x.Rows, hidden)
	tensor(op, "c", c, x.Rows, hidden)
	apart(op, h, x)
	apart(op, c, x)
	apart(op, h, c)
}

// CheckJoint checks the arguments of Joint.
func CheckJoint(logits, f, p Tensor, head Linear, tokens int, out []Choice) {
	const op = "Joint"
	rows, in := shape2(head.W)
	tensor(op, "f", f, len(out), in)
	tensor(op, "p", p, len(out), in)
	tensor(op, "logits", logits, len(out), rows)
	if head.B != nil {
		vector(op, "the bias", head.B, rows)
	}
	if tokens <= 0 || tokens > rows {
		panic(ShapeErrorf(op, "%d tokens among %d logits", tokens, rows))
	}
	apart(op, logits, f)
	apart(op, logits, p)
}

// CheckArgmax checks the arguments of Argmax.
func CheckArgmax(out []int, x Tensor) {
	tensor("Argmax", "x", x, len(out), x.Cols)
	if x.Cols == 0 {
		panic(ShapeErrorf("Argmax", "rows of no values"))
	}
}
