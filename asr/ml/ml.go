// Package ml is the border between Parakeet's mathematics and the machine that computes it: the tensors, the weights and the
// operations, about fifteen, that the encoder and the greedy decoders call, and nothing more.
//
// A [Backend] owns a device. Weights are uploaded once, in the number format that was asked for, and stay there. Activations are
// float32 and live in buffers that are reserved before a run starts; no operation allocates device memory. An operation may return
// before the device has finished it, but it sees the results of all operations before it, and [Backend.Read] waits.
//
// Every operation takes a context and looks at it at least every few milliseconds of device time, so that a canceled run ends soon
// however long the audio is; after an error its output is undefined. A Backend runs one operation at a time and is not safe for
// concurrent use. A shape that does not fit is a mistake in model code and panics with a [ShapeError]; everything that depends on
// outside data is an error.
//
// The package knows no model, reads no files and imports only the standard library. What each operation means is written here once,
// is computed in plain Go by asr/ml/cpu, and is held by the conformance suite asr/ml/mltest. An operation is added together with its
// caller, its plain version and its case in the suite.
package ml

import (
	"context"
	"errors"
)

// DType is the number format in which a backend keeps the weights of a matrix. Arithmetic is float32 in any case: a bfloat16 weight
// is a float32 with the lower half of its bits missing.
type DType uint8

// The formats of weights.
const (
	Float32 DType = iota + 1
	BFloat16
)

// String is the name that users see.
func (d DType) String() string {
	switch d {
	case Float32:
		return "float32"
	case BFloat16:
		return "bfloat16"
	}
	return "unknown"
}

// Size is the number of bytes of one element.
func (d DType) Size() int {
	if d == BFloat16 {
		return 2
	}
	return 4
}

// ErrOutOfMemory is wrapped by the errors of uploads and reservations that do not fit on the device.
var ErrOutOfMemory = errors.New("out of device memory")

// ErrNotFinite is wrapped by the errors of Joint and Argmax when a row has no maximum because all of it is NaN or -Inf: a broken
// checkpoint, never a property of the audio.
var ErrNotFinite = errors.New("the model's output is not finite")

// Weight is a tensor that stays on the device: a matrix or a small parameter.
type Weight interface {
	Shape() []int
	DType() DType
	// Bytes is the device memory that the weight takes, padding included.
	Bytes() int64
	// Release gives the memory back. The weight must not be used again.
	Release()
}

// Buffer is device memory for activations.
type Buffer interface {
	// Floats is the number of float32 values that fit.
	Floats() int
	// Release gives the memory back. Tensors in the buffer must not be used again.
	Release()
}

// Use says how a matrix will be read, so that a backend can lay it out accordingly at upload.
type Use uint8

// The uses of a matrix.
const (
	// UseLinear is for Linear, LSTM and Joint: [out, in].
	UseLinear Use = iota + 1
	// UseGated is for Linear with GLU: [2*out, in], the values' rows first, then the gates'.
	UseGated
	// UseRows is for Embed: rows are looked up by index.
	UseRows
)

// MatrixSpec describes a matrix to upload.
type MatrixSpec struct {
	Rows, Cols int
	DType      DType
	Use        Use
}

// Info describes a backend.
type Info struct {
	Name string // "cpu", "cuda:0"
	// DTypes are the weight formats that the backend accepts.
	DTypes []DType
	// RowBlock is the number of rows that the backend wants per operation where a caller computes wide intermediate results
	// (the hidden layer of a feed-forward module) block by block.
	RowBlock int
	// PadRows is the multiple to which the backend pads the rows of UseLinear and UseGated matrices.
	PadRows int
}

// MatrixBytes is the device memory that a matrix takes.
func (i Info) MatrixBytes(s MatrixSpec) int64 {
	rows := s.Rows
	unit := max(i.PadRows, 1)
	pad := func(n int) int { return (n + unit - 1) / unit * unit }
	switch s.Use {
	case UseLinear:
		rows = pad(rows)
	case UseGated:
		rows = 2 * pad(rows/2)
	case UseRows: // as they are
	}
	return int64(rows) * int64(s.Cols) * int64(s.DType.Size())
}

// Memory is what a backend holds at the moment, in bytes of device memory.
type Memory struct {
	WeightBytes  int64 // matrices and parameters
	BufferBytes  int64 // reserved for activations
	ScratchBytes int64 // the backend's own
}

// Total is the sum.
func (m Memory) Total() int64 { return m.WeightBytes + m.BufferBytes + m.ScratchBytes }

// Backend computes on one device. See the package comment for contexts, errors, panics and concurrency.
//
// Unless an operation says otherwise, its output must not overlap its inputs. Row counts may be zero.
type Backend interface {
	Info() Info
	Memory() Memory
	// Close frees the device. Weights and buffers end with it.
	Close() error

	// Matrix uploads a matrix given in row-major order, rounding to the nearest value of the format (ties to even). data is not kept.
	Matrix(spec MatrixSpec, data []float32) (Weight, error)
	// Param uploads a small float32 parameter: a bias, a norm's weight, a filter. data is row-major and not kept.
	Param(shape []int, data []float32) (Weight, error)
	// Reserve allocates memory for activations.
	Reserve(floats int) (Buffer, error)

	// Write copies src, row-major, into dst. len(src) is dst.Rows*dst.Cols.
	Write(ctx context.Context, dst Tensor, src []float32) error
	// Read copies src into dst, row-major, when all operations before it are done. len(dst) is src.Rows*src.Cols.
	Read(ctx context.Context, dst []float32, src Tensor) error

	// Linear computes dst = residual + scale * act(x W^T + b) with the parts of e that are set.
	// x is [n, in], dst [n, out]. dst may be the residual.
	Linear(ctx context.Context, dst, x Tensor, l Linear, e Epilogue) error
	// LayerNorm normalizes each row with its biased variance and applies n. dst may be x.
	LayerNorm(ctx context.Context, dst, x Tensor, n Norm) error
	// Attention computes relative-position attention; see [RelAttention]. dst is [n, heads*d] and may be a.Q.
	Attention(ctx context.Context, dst Tensor, a RelAttention) error
	// DepthwiseConv filters every column over time with zeros outside: for an odd number k of taps,
	// dst[t][c] = act(b[c] + sum_j W[j][c] * x[t+j-k/2][c]). x and dst are [n, channels], f.W is [k, channels].
	DepthwiseConv(ctx context.Context, dst, x Tensor, f Filter, act Activation) error
	// ConvStem is the first convolution of the subsampling, from one channel to all of them, with ReLU: mel is [g.InRows, g.InWidth],
	// f.W [9, channels] with tap 3*i+j on row i and column j of the 3x3 kernel, dst [g.OutRows*g.OutWidth(), channels].
	ConvStem(ctx context.Context, dst, mel Tensor, f Filter, g Conv2D) error
	// ConvDepthwise2D filters each channel by itself, without activation: x is [g.InRows*g.InWidth, channels], the rest as in ConvStem.
	ConvDepthwise2D(ctx context.Context, dst, x Tensor, f Filter, g Conv2D) error

	// Embed copies the rows ids of a UseRows matrix to dst [len(ids), width].
	Embed(ctx context.Context, dst Tensor, table Weight, ids []int) error
	// LSTM advances one layer by one step, in place: h and c are [n, hidden], x is [n, in]. Gates are ordered input, forget, cell, output.
	LSTM(ctx context.Context, h, c, x Tensor, l LSTM) error
	// Joint computes logits = head(ReLU(f + p)), [n, tokens+durations], and for each row the first maximum among the first `tokens`
	// logits and the first among the rest. f and p are [n, in]. len(out) is n.
	Joint(ctx context.Context, logits, f, p Tensor, head Linear, tokens int, out []Choice) error
	// Argmax finds the first maximum of each row of x. len(out) is x.Rows.
	Argmax(ctx context.Context, out []int, x Tensor) error
}

// Linear is a matrix [out, in] and an optional bias [out].
type Linear struct {
	W Weight
	B Weight // nil: none
}

// Activation is what follows a linear or a convolution.
type Activation uint8

// The activations. GLU halves the width: the first half of the columns times the sigmoid of the second.
const (
	None Activation = iota
	ReLU
	SiLU
	GLU
)

// Epilogue is what Linear does to x W^T + b before it stores it.
type Epilogue struct {
	Act      Activation
	Scale    float32 // 0 is read as 1
	Residual Tensor  // the zero Tensor: none
}

// Norm is a layer norm: (x - mean)/sqrt(variance + Eps) * W + B, with W and B [width].
type Norm struct {
	W, B Weight
	Eps  float64
}

// Filter holds the taps [k, channels] and the bias [channels] of a convolution that keeps channels apart, or starts from one.
type Filter struct {
	W, B Weight
}

// LSTM is one layer: WX [4*hidden, in] and WH [4*hidden, hidden], B [4*hidden] the sum of both bias vectors.
type LSTM struct {
	WX, WH, B Weight
}

// Choice is the outcome of Joint for one row, as indices into the two groups of logits.
type Choice struct {
	Token, Duration int
}

// RelAttention is multi-head attention with Transformer-XL's relative positions. For each head, with d = width/Heads,
//
//	score(i, j) = ((Q[i]+U)·K[j] + (Q[i]+V0)·R[i-j]) / sqrt(d)
//
// over the keys j with -Right <= i-j <= Left (a negative Left or Right does not bound that side), softmax over j, and the sum of V
// with these probabilities. No more than a tile of scores may exist at a time.
type RelAttention struct {
	Q, K, V Tensor // [n, width]; head h has columns h*d to (h+1)*d
	// R holds the projected positions of the offsets MinOffset, MinOffset+1, ...: every i-j that is allowed and occurs.
	R           Tensor
	MinOffset   int
	U, V0       Weight // [Heads, d]: biases of the content and of the position term
	Heads       int
	Left, Right int
}

// Conv2D is the geometry of a 3x3 convolution over (time, mel) with stride 2 and one zero around, on a slice of time: output row t
// reads input rows 2t+Offset-1 to 2t+Offset+1 of the slice. Rows outside the slice and columns outside the width are zeros.
type Conv2D struct {
	InRows, InWidth int
	OutRows         int
	Offset          int
}

// OutWidth is the width after the stride.
func (g Conv2D) OutWidth() int { return (g.InWidth-1)/2 + 1 }
