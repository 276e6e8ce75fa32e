package checkpoint

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// safetensorsFile puts a header before n bytes of data.
func safetensorsFile(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

func readBytes(data []byte) ([]tensor, error) {
	return readSafetensors(section{name: "f", r: bytes.NewReader(data), size: int64(len(data))})
}

func TestSafetensorsHeader(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		header string
		data   int
		want   string // "" where the file is good
	}{
		"good":              {`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}   `, 10, ""},
		"out of order":      {`{"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]},"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`, 4, ""},
		"empty tensors":     {`{"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"c":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}`, 4, ""},
		"no tensors":        {`{}`, 0, ""},
		"not an object":     {`[]`, 0, "not a JSON object"},
		"not JSON":          {`{"a":`, 0, "header"},
		"unfinished":        {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`, 4, "header"},
		"more after it":     {`{}{}`, 0, "text after the JSON object"},
		"duplicate name":    {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, `tensor "a" comes twice`},
		"unknown type":      {`{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}`, 8, `tensor "a": dtype "F64", expected F32, F16, BF16 or I64`},
		"no type":           {`{"a":{"shape":[1],"data_offsets":[0,4]}}`, 4, `dtype ""`},
		"wrong size":        {`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}}`, 20, `tensor "a": data_offsets [0 20] are 20 bytes, expected 24 for F32 of shape [2 3]`},
		"beyond the end":    {`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 7, `outside the 7 bytes`},
		"backwards":         {`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8, `data_offsets [8 0]`},
		"negative offset":   {`{"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}`, 8, `data_offsets [-8 0]`},
		"one offset":        {`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}}`, 8, `expected two numbers`},
		"negative shape":    {`{"a":{"dtype":"F32","shape":[-1,-2],"data_offsets":[0,8]}}`, 8, `negative dimension`},
		"overflowing shape": {`{"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}`, 0, `more than 2^40`},
		"wrapping shape":    {`{"a":{"dtype":"F32","shape":[9223372036854775807,3],"data_offsets":[0,4]}}`, 4, `more than 2^40`},
		"many dimensions":   {`{"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}`, 4, `9 dimensions`},
		"fractional shape":  {`{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}`, 4, `tensor "a"`},
		"overlap":           {`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12, `tensor "b" starts at byte 4 of the data, expected 8`},
		"the same range":    {`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8, `tensor "b" starts at byte 0`},
		"gap":               {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, `tensor "a" starts at byte 4 of the data, expected 0`},
		"left over":         {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8, `cover 4 bytes, but the file holds 8`},
		"bad metadata":      {`{"__metadata__":{"a":1}}`, 0, `__metadata__`},
		"deep":              {strings.Repeat(`{"a":`, 20000), 0, `header`},
	} {
		list, err := readBytes(safetensorsFile(tt.header, tt.data))
		if err == nil {
			_, err = newTensorSet(list)
		}
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "f: ")):
			t.Errorf("%s: got error %v\nwant f: ... %s", name, err, tt.want)
		}
	}
}

func TestSafetensorsPrefix(t *testing.T) {
	t.Parallel()
	for _, data := range [][]byte{
		nil,
		[]byte("short"),
		{3, 0, 0, 0, 0, 0, 0, 0, '{', '}'},
		{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'},
		append([]byte{1, 0, 0, 1, 0, 0, 0, 0}, make([]byte, 100)...),
	} {
		if _, err := readBytes(data); err == nil {
			t.Errorf("% x was accepted", data)
		}
	}
	// A header that fits the file but not the bound is refused before it is read.
	s := section{name: "f", r: bytes.NewReader([]byte{0, 0, 0, 2, 0, 0, 0, 0}), size: 1 << 30}
	if _, err := readSafetensors(s); err == nil || !strings.Contains(err.Error(), "expected at most 16777216") {
		t.Errorf("got %v", err)
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(safetensorsFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}`, 10))
	f.Add(safetensorsFile(`{"__metadata__":{"x":"y"},"a":{"dtype":"I64","shape":[0,7],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readBytes(data)
		if err != nil {
			return
		}
		readAll(t, list, int64(len(data)))
	})
}

// readAll reads what a parser of outside bytes accepted: that must not fail, and
// not take more memory than the file has bytes.
func readAll(t *testing.T, list []tensor, fileBytes int64) {
	t.Helper()
	set, err := newTensorSet(list)
	if err != nil {
		return
	}
	for _, name := range set.Names() {
		info, _ := set.Info(name)
		if n := info.Elements(); n < 0 || int64(n)*int64(info.DType.Bytes()) > fileBytes {
			t.Fatalf("%s: %d elements in a file of %d bytes", name, n, fileBytes)
		}
		if info.DType == I64 {
			continue
		}
		if err := set.Float32(name, make([]float32, info.Elements())); err != nil {
			t.Fatal(err)
		}
		if err := set.BFloat16(name, make([]uint16, info.Elements())); err != nil {
			t.Fatal(err)
		}
	}
}
