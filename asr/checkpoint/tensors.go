package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

const (
	maxRank     = 8       // dimensions of a tensor; the models have at most 4
	maxElements = 1 << 40 // of a tensor: so that products and byte counts stay far from overflow
)

// blockBytes is how much is read at a time; a multiple of every element size.
const blockBytes = 256 << 10

// tensor is one entry of a tensorSet: where the elements lie.
type tensor struct {
	TensorInfo
	data    section // the bytes the elements may lie in
	start   int64   // of the first element, in bytes from data.off
	strides []int   // in elements, by dimension; nil for row-major without gaps
}

// tensorSet implements Tensors over files.
type tensorSet struct {
	byName map[string]tensor
	names  []string // ascending
}

var _ Tensors = (*tensorSet)(nil)

// newTensorSet refuses a name that comes twice.
func newTensorSet(list []tensor) (*tensorSet, error) {
	s := &tensorSet{byName: make(map[string]tensor, len(list))}
	for _, t := range list {
		if other, dup := s.byName[t.Name]; dup {
			return nil, fmt.Errorf("%s: tensor %q comes twice (also in %s)", t.data.name, t.Name, other.data.name)
		}
		s.byName[t.Name] = t
		s.names = append(s.names, t.Name)
	}
	slices.Sort(s.names)
	return s, nil
}

func (s *tensorSet) Names() []string { return slices.Clone(s.names) }

func (s *tensorSet) Info(name string) (TensorInfo, bool) {
	t, ok := s.byName[name]
	info := t.TensorInfo
	info.Shape = slices.Clone(info.Shape)
	return info, ok
}

func (s *tensorSet) Float32(name string, dst []float32) error {
	t, err := s.readable(name, len(dst))
	if err != nil {
		return err
	}
	return t.read(func(at int, raw []byte) {
		widen(dst[at:at+len(raw)/t.DType.Bytes()], raw, t.DType)
	})
}

func (s *tensorSet) BFloat16(name string, dst []uint16) error {
	t, err := s.readable(name, len(dst))
	if err != nil {
		return err
	}
	return t.read(func(at int, raw []byte) {
		narrow(dst[at:at+len(raw)/t.DType.Bytes()], raw, t.DType)
	})
}

func (s *tensorSet) readable(name string, room int) (tensor, error) {
	t, ok := s.byName[name]
	switch {
	case !ok:
		return t, fmt.Errorf("there is no tensor %q", name)
	case t.DType == I64:
		return t, fmt.Errorf("%s: tensor %q is I64, expected a floating type", t.data.name, name)
	case room != t.Elements():
		return t, fmt.Errorf("%s: tensor %q has %d elements (shape %v), the destination %d",
			t.data.name, name, t.Elements(), t.Shape, room)
	}
	return t, nil
}

var blocks = sync.Pool{New: func() any { b := make([]byte, blockBytes); return &b }}

// read calls emit with the elements in row-major order, block by block; at is
// the index of the block's first element.
func (t *tensor) read(emit func(at int, raw []byte)) error {
	if t.strides != nil {
		return t.gather(emit)
	}
	block := blocks.Get().(*[]byte)
	defer blocks.Put(block)
	size := t.DType.Bytes()
	total := t.Elements() * size
	for done := 0; done < total; {
		n := min(total-done, blockBytes)
		if err := t.readAt((*block)[:n], int64(done)); err != nil {
			return err
		}
		emit(done/size, (*block)[:n])
		done += n
	}
	return nil
}

// gather reads a view whose elements do not lie in order. Such views are rare
// and small in real files, so the bytes from its first to its last element are
// held at once.
func (t *tensor) gather(emit func(at int, raw []byte)) error {
	total := t.Elements()
	if total == 0 {
		return nil
	}
	size := t.DType.Bytes()
	span := make([]byte, (lastElement(t.Shape, t.strides)+1)*size)
	if err := t.readAt(span, 0); err != nil {
		return err
	}
	packed := make([]byte, 0, blockBytes)
	index := make([]int, len(t.Shape))
	for done := range total {
		from := 0
		for d, i := range index {
			from += i * t.strides[d]
		}
		packed = append(packed, span[from*size:(from+1)*size]...)
		if len(packed) == blockBytes || done == total-1 {
			emit(done+1-len(packed)/size, packed)
			packed = packed[:0]
		}
		for d := len(index) - 1; d >= 0; d-- {
			if index[d]++; index[d] < t.Shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return nil
}

func (t *tensor) readAt(p []byte, off int64) error {
	n, err := t.data.r.ReadAt(p, t.data.off+t.start+off)
	if n == len(p) {
		return nil
	}
	return fmt.Errorf("%s: tensor %q: read %d of %d bytes: %w", t.data.name, t.Name, n, len(p), err)
}

// elements multiplies a shape that came from a file.
func elements(shape []int64) (int64, error) {
	if len(shape) > maxRank {
		return 0, fmt.Errorf("%d dimensions, expected at most %d", len(shape), maxRank)
	}
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension in shape %v", shape)
		}
		// A zero further on does not excuse an overflow before it.
		if d > 0 && n > maxElements/d {
			return 0, fmt.Errorf("shape %v has more than 2^40 elements", shape)
		}
		n *= max(d, 1)
	}
	if slices.Contains(shape, 0) {
		return 0, nil
	}
	return n, nil
}

// lastElement is the offset of a view's last element, in elements. The shape
// has no zero.
func lastElement(shape, strides []int) int {
	last := 0
	for d, n := range shape {
		last += (n - 1) * strides[d]
	}
	return last
}

// ints narrows numbers that were bounded before.
func ints(list []int64) []int {
	out := make([]int, len(list))
	for i, v := range list {
		out[i] = int(min(v, math.MaxInt))
	}
	return out
}
