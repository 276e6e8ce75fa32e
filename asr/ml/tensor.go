package ml

// Tensor is a float32 matrix in a buffer: Rows rows of Cols values, Stride apart. It is a value; views cost nothing.
// The zero Tensor is no tensor.
type Tensor struct {
	Buf                Buffer
	Offset             int // of the first value, in floats
	Rows, Cols, Stride int
}

// NewTensor lays a contiguous tensor into buf.
func NewTensor(buf Buffer, offset, rows, cols int) Tensor {
	t := Tensor{Buf: buf, Offset: offset, Rows: rows, Cols: cols, Stride: cols}
	if offset < 0 || rows < 0 || cols < 0 || offset+rows*cols > buf.Floats() {
		panic(ShapeErrorf("tensor", "%v does not fit into %d floats", t, buf.Floats()))
	}
	return t
}

// IsZero reports whether t is no tensor.
func (t Tensor) IsZero() bool { return t.Buf == nil }

// RowRange is the view of the rows from a up to but not including b.
func (t Tensor) RowRange(a, b int) Tensor {
	if a < 0 || b < a || b > t.Rows {
		panic(ShapeErrorf("tensor", "rows %d:%d of %v", a, b, t))
	}
	t.Offset += a * t.Stride
	t.Rows = b - a
	return t
}

// ColRange is the view of the columns from a up to but not including b.
func (t Tensor) ColRange(a, b int) Tensor {
	if a < 0 || b < a || b > t.Cols {
		panic(ShapeErrorf("tensor", "columns %d:%d of %v", a, b, t))
	}
	t.Offset += a
	t.Cols = b - a
	return t
}

// Reshape is the view of a contiguous tensor as rows of another width.
func (t Tensor) Reshape(rows, cols int) Tensor {
	if t.Stride != t.Cols || rows*cols != t.Rows*t.Cols {
		panic(ShapeErrorf("tensor", "%v as [%d, %d]", t, rows, cols))
	}
	t.Rows, t.Cols, t.Stride = rows, cols, cols
	return t
}

// Same reports whether t and u are the same view.
func (t Tensor) Same(u Tensor) bool { return t == u }

// Overlaps reports whether the memory spans of t and u meet. Two column ranges of the same rows do not overlap.
func (t Tensor) Overlaps(u Tensor) bool {
	if t.Buf != u.Buf || t.Rows == 0 || u.Rows == 0 || t.Cols == 0 || u.Cols == 0 {
		return false
	}
	endT := t.Offset + (t.Rows-1)*t.Stride + t.Cols
	endU := u.Offset + (u.Rows-1)*u.Stride + u.Cols
	if endT <= u.Offset || endU <= t.Offset {
		return false
	}
	if t.Stride != u.Stride {
		return true
	}
	// Equal strides: compare the columns modulo the stride.
	gap := (u.Offset - t.Offset) % t.Stride
	if gap < 0 {
		gap += t.Stride
	}
	return gap < t.Cols || gap+u.Cols > t.Stride
}
