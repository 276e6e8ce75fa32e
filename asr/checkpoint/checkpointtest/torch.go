package checkpointtest

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// WriteTorch writes an OrderedDict of tensors as torch.save does: a zip with a
// pickle and one stored entry per tensor. It needs no seeking.
func WriteTorch(w io.Writer, tensors []checkpoint.TensorInfo, fill Fill) error {
	z := zip.NewWriter(w)
	small := []struct {
		name string
		data []byte
	}{
		{"archive/data.pkl", stateDict(tensors)},
		{"archive/byteorder", []byte("little")},
		{"archive/version", []byte("3\n")},
	}
	for _, s := range small {
		f, err := z.CreateHeader(&zip.FileHeader{Name: s.name, Method: zip.Store})
		if err != nil {
			return err
		}
		if _, err := f.Write(s.data); err != nil {
			return err
		}
	}
	for i, t := range tensors {
		f, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("archive/data/%d", i), Method: zip.Store})
		if err != nil {
			return err
		}
		if err := writeTensor(f, t, fill); err != nil {
			return err
		}
	}
	return z.Close()
}

// storageClasses are the last parts of the globals torch.<class>.
var storageClasses = map[checkpoint.DType]string{
	checkpoint.F32:  "FloatStorage",
	checkpoint.F16:  "HalfStorage",
	checkpoint.BF16: "BFloat16Storage",
	checkpoint.I64:  "LongStorage",
}

// stateDict is the pickle, protocol 2: an OrderedDict that maps each name to a
// tensor that is all of storage number i, in order.
func stateDict(tensors []checkpoint.TensorInfo) []byte {
	var b bytes.Buffer
	b.WriteString("\x80\x02ccollections\nOrderedDict\n)R(")
	for i, t := range tensors {
		pickleString(&b, t.Name)
		b.WriteString("ctorch._utils\n_rebuild_tensor_v2\n((")
		pickleString(&b, "storage")
		fmt.Fprintf(&b, "ctorch\n%s\n", storageClasses[t.DType])
		pickleString(&b, fmt.Sprint(i))
		pickleString(&b, "cpu")
		pickleInt(&b, t.Elements())
		b.WriteString("tQ")
		pickleInt(&b, 0)
		strides := make([]int, len(t.Shape))
		step := 1
		for d := len(strides) - 1; d >= 0; d-- {
			strides[d] = step
			step *= t.Shape[d]
		}
		for _, tuple := range [][]int{t.Shape, strides} {
			b.WriteByte('(')
			for _, v := range tuple {
				pickleInt(&b, v)
			}
			b.WriteByte('t')
		}
		b.WriteString("\x89ccollections\nOrderedDict\n)RtR")
	}
	b.WriteString("u.")
	return b.Bytes()
}

func pickleString(b *bytes.Buffer, s string) {
	b.WriteByte('X')
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	b.WriteString(s)
}

func pickleInt(b *bytes.Buffer, v int) {
	b.WriteByte('J')
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(v)))
}
