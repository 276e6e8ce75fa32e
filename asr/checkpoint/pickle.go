package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Bounds of the pickle machine. A state dict of 700 tensors is 150 kB, about
// 8,000 memo entries and, in batches of 1,000 items, 2,000 stack entries.
const (
	maxPickleBytes = 16 << 20
	maxPickleStack = 1 << 16
	maxPickleMemo  = 1 << 20
)

// The values that the machine handles besides int64, bool, string and nil.
type (
	pyMark   struct{}
	pyGlobal string // module.name
	pyTuple  []any
	pyList   struct{ items []any }
	pyDict   struct{ keys, values []any } // dict and OrderedDict
)

// pyStorage is a PyTorch storage, named by a persistent id.
type pyStorage struct {
	dtype DType
	key   string // of the entry data/<key>
	elems int64
}

// pyTensor is a view of a storage.
type pyTensor struct {
	storage         *pyStorage
	offset          int64 // in elements
	shape, strides  []int64
	elems           int64
	rowMajorNoHoles bool
}

const (
	globalOrderedDict   = "collections.OrderedDict"
	globalRebuildTensor = "torch._utils._rebuild_tensor_v2"
)

// storageTypes are the storage classes that hold weights.
var storageTypes = map[string]DType{
	"torch.FloatStorage":    F32,
	"torch.HalfStorage":     F16,
	"torch.BFloat16Storage": BF16,
	"torch.LongStorage":     I64,
}

// stateItem is a named tensor of a state dict.
type stateItem struct {
	name   string
	tensor *pyTensor
}

// readStateDict runs the pickle of a state dict: the subset of protocol 2 that
// torch.save uses for an OrderedDict of tensors. A pickle is a program that can
// call any function by name; this machine knows the functions above and refuses
// every other before it is called, and every opcode that it has no need of.
// Opcodes: the pickle module's own list, in CPython's Lib/pickletools.py.
func readStateDict(data []byte) ([]stateItem, error) {
	if len(data) > maxPickleBytes {
		return nil, fmt.Errorf("pickle of %d bytes, expected at most %d", len(data), maxPickleBytes)
	}
	m := pickleMachine{data: data, memo: make(map[uint32]any)}
	for {
		at := m.pos
		done, err := m.step()
		if err != nil {
			return nil, fmt.Errorf("pickle, byte %d: %w", at, err)
		}
		if done {
			break
		}
	}
	top, err := m.pop()
	if err != nil {
		return nil, fmt.Errorf("pickle: %w", err)
	}
	dict, ok := top.(*pyDict)
	if !ok {
		return nil, fmt.Errorf("pickle holds %s, expected a dict of tensors", pyName(top))
	}
	items := make([]stateItem, len(dict.keys))
	for i, k := range dict.keys {
		name, ok := k.(string)
		if !ok {
			return nil, fmt.Errorf("state dict has a key that is %s, expected a string", pyName(k))
		}
		t, ok := dict.values[i].(*pyTensor)
		if !ok {
			return nil, fmt.Errorf("state dict: %q is %s, expected a tensor", name, pyName(dict.values[i]))
		}
		items[i] = stateItem{name, t}
	}
	return items, nil
}

// pyName describes a value in an error.
func pyName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case int64:
		return fmt.Sprintf("the number %d", v)
	case bool:
		return "a bool"
	case string:
		return "a string"
	case pyMark:
		return "a mark"
	case pyGlobal:
		return string(v)
	case pyTuple:
		return "a tuple"
	case *pyList:
		return "a list"
	case *pyDict:
		return "a dict"
	case *pyStorage:
		return "a storage"
	case *pyTensor:
		return "a tensor"
	}
	return fmt.Sprintf("a %T", v)
}

type pickleMachine struct {
	data  []byte
	pos   int
	stack []any
	memo  map[uint32]any
}

var (
	errTruncated = errors.New("truncated")
	errUnderflow = errors.New("stack is empty")
)

func (m *pickleMachine) take(n int) ([]byte, error) {
	if n < 0 || n > len(m.data)-m.pos {
		return nil, errTruncated
	}
	b := m.data[m.pos : m.pos+n]
	m.pos += n
	return b, nil
}

// line takes the bytes before the next newline, and the newline.
func (m *pickleMachine) line() (string, error) {
	n := slices.Index(m.data[m.pos:], '\n')
	if n < 0 {
		return "", errTruncated
	}
	s := string(m.data[m.pos : m.pos+n])
	m.pos += n + 1
	return s, nil
}

func (m *pickleMachine) push(v any) error {
	if len(m.stack) >= maxPickleStack {
		return fmt.Errorf("more than %d values on the stack", maxPickleStack)
	}
	m.stack = append(m.stack, v)
	return nil
}

func (m *pickleMachine) pop() (any, error) {
	if len(m.stack) == 0 {
		return nil, errUnderflow
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v, nil
}

// popN pops n values; the first popped is the last of the result.
func (m *pickleMachine) popN(n int) ([]any, error) {
	if len(m.stack) < n {
		return nil, errUnderflow
	}
	at := len(m.stack) - n
	v := slices.Clone(m.stack[at:])
	m.stack = m.stack[:at]
	return v, nil
}

// popMark pops down to the last mark, and the mark.
func (m *pickleMachine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, ok := m.stack[i].(pyMark); ok {
			v := slices.Clone(m.stack[i+1:])
			m.stack = m.stack[:i]
			return v, nil
		}
	}
	return nil, errors.New("there is no mark on the stack")
}

func (m *pickleMachine) store(at uint32) error {
	if len(m.stack) == 0 {
		return errUnderflow
	}
	if len(m.memo) >= maxPickleMemo {
		return fmt.Errorf("more than %d memo entries", maxPickleMemo)
	}
	m.memo[at] = m.stack[len(m.stack)-1]
	return nil
}

func (m *pickleMachine) load(at uint32) error {
	v, ok := m.memo[at]
	if !ok {
		return fmt.Errorf("memo has no entry %d", at)
	}
	return m.push(v)
}

// text takes a UTF-8 string of n bytes.
func (m *pickleMachine) text(n int) (string, error) {
	b, err := m.take(n)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", errors.New("string is not UTF-8")
	}
	return string(b), nil
}

// uint takes a little-endian number of 1, 2 or 4 bytes.
func (m *pickleMachine) uint(n int) (uint32, error) {
	b, err := m.take(n)
	if err != nil {
		return 0, err
	}
	var wide [4]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint32(wide[:]), nil
}
