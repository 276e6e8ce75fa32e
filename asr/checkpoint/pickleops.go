package checkpoint

import (
	"errors"
	"fmt"
)

// The opcodes that a state dict may use.
const (
	opProto      = 0x80
	opStop       = '.'
	opMark       = '('
	opGlobal     = 'c'
	opEmptyTuple = ')'
	opTuple      = 't'
	opTuple1     = 0x85
	opTuple2     = 0x86
	opTuple3     = 0x87
	opEmptyDict  = '}'
	opEmptyList  = ']'
	opReduce     = 'R'
	opBinUnicode = 'X'
	opBinPut     = 'q'
	opLongBinPut = 'r'
	opBinGet     = 'h'
	opLongBinGet = 'j'
	opBinInt     = 'J'
	opBinInt1    = 'K'
	opBinInt2    = 'M'
	opLong1      = 0x8a
	opNewTrue    = 0x88
	opNewFalse   = 0x89
	opNone       = 'N'
	opBinPersID  = 'Q'
	opSetItem    = 's'
	opSetItems   = 'u'
	opAppend     = 'a'
	opAppends    = 'e'
	opBuild      = 'b'
)

// maxPickleVersion is the protocol of torch.save; later ones have other opcodes.
const maxPickleVersion = 2

// step runs one opcode; done is true after STOP.
func (m *pickleMachine) step() (done bool, err error) {
	code, err := m.take(1)
	if err != nil {
		return false, err
	}
	switch op := code[0]; op {
	case opProto:
		v, err := m.uint(1)
		if err == nil && v > maxPickleVersion {
			err = fmt.Errorf("protocol %d, expected at most %d", v, maxPickleVersion)
		}
		return false, err
	case opStop:
		return true, nil
	case opGlobal:
		return false, m.global()
	case opReduce:
		return false, m.reduce()
	case opBinPersID:
		return false, m.persistentID()
	case opSetItem, opSetItems, opAppend, opAppends, opBuild:
		return false, m.mutate(op)
	case opBinPut, opLongBinPut, opBinGet, opLongBinGet:
		return false, m.remember(op)
	default:
		v, err := m.literal(op)
		if err != nil {
			return false, err
		}
		return false, m.push(v)
	}
}

// literal gives the value that op pushes.
func (m *pickleMachine) literal(op byte) (any, error) {
	switch op {
	case opMark:
		return pyMark{}, nil
	case opNone:
		return nil, nil
	case opNewTrue:
		return true, nil
	case opNewFalse:
		return false, nil
	case opEmptyDict:
		return &pyDict{}, nil
	case opEmptyList:
		return &pyList{}, nil
	case opEmptyTuple:
		return pyTuple{}, nil
	case opTuple1, opTuple2, opTuple3:
		v, err := m.popN(int(op-opTuple1) + 1)
		return pyTuple(v), err
	case opTuple:
		v, err := m.popMark()
		return pyTuple(v), err
	case opBinUnicode:
		n, err := m.uint(4)
		if err != nil {
			return nil, err
		}
		return m.text(int(n))
	case opBinInt:
		v, err := m.uint(4)
		return int64(int32(v)), err
	case opBinInt1:
		v, err := m.uint(1)
		return int64(v), err
	case opBinInt2:
		v, err := m.uint(2)
		return int64(v), err
	case opLong1:
		return m.long()
	}
	return nil, fmt.Errorf("opcode %#02x (%q) has no place in a state dict", op, op)
}

// long takes a two's complement number of at most 8 bytes.
func (m *pickleMachine) long() (any, error) {
	n, err := m.uint(1)
	if err != nil {
		return nil, err
	}
	if n > 8 {
		return nil, fmt.Errorf("integer of %d bytes, expected at most 8", n)
	}
	b, err := m.take(int(n))
	if err != nil || n == 0 {
		return int64(0), err
	}
	v := int64(int8(b[n-1]))
	for i := int(n) - 2; i >= 0; i-- {
		v = v<<8 | int64(b[i])
	}
	return v, nil
}

func (m *pickleMachine) remember(op byte) error {
	width := 1
	if op == opLongBinPut || op == opLongBinGet {
		width = 4
	}
	at, err := m.uint(width)
	if err != nil {
		return err
	}
	if op == opBinPut || op == opLongBinPut {
		return m.store(at)
	}
	return m.load(at)
}

// global pushes a name, if it is one of those allowed.
func (m *pickleMachine) global() error {
	module, err := m.line()
	if err != nil {
		return err
	}
	name, err := m.line()
	if err != nil {
		return err
	}
	full := module + "." + name
	_, storage := storageTypes[full]
	if !storage && full != globalOrderedDict && full != globalRebuildTensor {
		return fmt.Errorf("refused global %q: a state dict may only name tensors and their storages", full)
	}
	return m.push(pyGlobal(full))
}

func (m *pickleMachine) reduce() error {
	v, err := m.popN(2)
	if err != nil {
		return err
	}
	args, ok := v[1].(pyTuple)
	if !ok {
		return fmt.Errorf("arguments of a call are %s, expected a tuple", pyName(v[1]))
	}
	switch v[0] {
	case pyGlobal(globalOrderedDict):
		if len(args) != 0 {
			return fmt.Errorf("%s with %d arguments, expected none", globalOrderedDict, len(args))
		}
		return m.push(&pyDict{})
	case pyGlobal(globalRebuildTensor):
		t, err := rebuildTensor(args)
		if err != nil {
			return fmt.Errorf("%s: %w", globalRebuildTensor, err)
		}
		return m.push(t)
	}
	return fmt.Errorf("refused call of %s", pyName(v[0]))
}

// persistentID pops ("storage", class, key, device, elements).
func (m *pickleMachine) persistentID() error {
	v, err := m.pop()
	if err != nil {
		return err
	}
	id, ok := v.(pyTuple)
	if !ok || len(id) != 5 || id[0] != "storage" {
		return errors.New("persistent id is not that of a storage")
	}
	class, _ := id[1].(pyGlobal)
	dtype, ok := storageTypes[string(class)]
	if !ok {
		return fmt.Errorf("storage class is %s", pyName(id[1]))
	}
	key, ok := id[2].(string)
	if !ok {
		return fmt.Errorf("storage key is %s, expected a string", pyName(id[2]))
	}
	elems, ok := id[4].(int64)
	if !ok || elems < 0 || elems > maxElements {
		return fmt.Errorf("storage %q has %s elements", key, pyName(id[4]))
	}
	return m.push(&pyStorage{dtype: dtype, key: key, elems: elems})
}

// mutate runs the opcodes that fill the container below their arguments.
func (m *pickleMachine) mutate(op byte) error {
	var items []any
	var err error
	switch op {
	case opSetItems, opAppends:
		items, err = m.popMark()
	case opSetItem:
		items, err = m.popN(2)
	default:
		items, err = m.popN(1)
	}
	if err != nil {
		return err
	}
	if len(m.stack) == 0 {
		return errUnderflow
	}
	switch c := m.stack[len(m.stack)-1].(type) {
	case *pyDict:
		if op == opBuild {
			return nil // OrderedDict's _metadata: versions of modules
		}
		if (op != opSetItem && op != opSetItems) || len(items)%2 != 0 {
			return fmt.Errorf("opcode %q with %d values on a dict", op, len(items))
		}
		for i := 0; i < len(items); i += 2 {
			c.keys = append(c.keys, items[i])
			c.values = append(c.values, items[i+1])
		}
		return nil
	case *pyList:
		if op != opAppend && op != opAppends {
			return fmt.Errorf("opcode %q on a list", op)
		}
		c.items = append(c.items, items...)
		return nil
	default:
		return fmt.Errorf("opcode %q on %s", op, pyName(c))
	}
}

// rebuildTensor checks (storage, offset, size, stride, requires_grad, hooks)
// and, since torch 1.11, an optional metadata argument. The view must lie in the
// storage, and may not have more elements than it: a stride of 0 would let a
// small file ask for any amount of memory.
func rebuildTensor(args pyTuple) (*pyTensor, error) {
	if len(args) != 6 && len(args) != 7 {
		return nil, fmt.Errorf("%d arguments, expected 6 or 7", len(args))
	}
	t := &pyTensor{}
	var ok bool
	if t.storage, ok = args[0].(*pyStorage); !ok {
		return nil, fmt.Errorf("argument 1 is %s, expected a storage", pyName(args[0]))
	}
	if t.offset, ok = args[1].(int64); !ok || t.offset < 0 || t.offset > t.storage.elems {
		return nil, fmt.Errorf("offset is %s in a storage of %d elements", pyName(args[1]), t.storage.elems)
	}
	var err error
	if t.shape, err = pyInts(args[2]); err != nil {
		return nil, fmt.Errorf("size: %w", err)
	}
	if t.strides, err = pyInts(args[3]); err != nil {
		return nil, fmt.Errorf("stride: %w", err)
	}
	if len(t.shape) != len(t.strides) {
		return nil, fmt.Errorf("size %v and stride %v differ in length", t.shape, t.strides)
	}
	if t.elems, err = elements(t.shape); err != nil {
		return nil, err
	}
	return t, t.checkView()
}

// checkView holds the view to its storage, and notes whether it is in order.
func (t *pyTensor) checkView() error {
	t.rowMajorNoHoles = true
	if t.elems == 0 {
		return nil
	}
	last, step := t.offset, int64(1)
	for d := len(t.shape) - 1; d >= 0; d-- {
		n, stride := t.shape[d], t.strides[d]
		if stride < 0 || stride > t.storage.elems {
			return fmt.Errorf("stride %d in a storage of %d elements", stride, t.storage.elems)
		}
		if n > 1 && stride != step {
			t.rowMajorNoHoles = false
		}
		// Both factors are at most 2^40 elements; more than the storage ends it
		// before the product can overflow.
		if stride > 0 && n-1 > t.storage.elems/stride {
			return fmt.Errorf("size %v with stride %v leaves a storage of %d elements", t.shape, t.strides, t.storage.elems)
		}
		last += (n - 1) * stride
		step *= n
	}
	if last >= t.storage.elems || t.elems > t.storage.elems {
		return fmt.Errorf("size %v with stride %v from element %d leaves a storage of %d elements",
			t.shape, t.strides, t.offset, t.storage.elems)
	}
	return nil
}

func pyInts(v any) ([]int64, error) {
	tuple, ok := v.(pyTuple)
	if !ok {
		return nil, fmt.Errorf("%s, expected a tuple", pyName(v))
	}
	if len(tuple) > maxRank {
		return nil, fmt.Errorf("%d dimensions, expected at most %d", len(tuple), maxRank)
	}
	out := make([]int64, len(tuple))
	for i, e := range tuple {
		if out[i], ok = e.(int64); !ok {
			return nil, fmt.Errorf("%s, expected a number", pyName(e))
		}
	}
	return out, nil
}
