package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// maxHeaderBytes bounds the JSON of a safetensors file. The 0.6B model's has
// about 80 kB; the format itself allows 100 MB.
const maxHeaderBytes = 16 << 20

// readSafetensors reads the header of a file and checks all of it: known types,
// byte ranges that fit the shapes and cover the data exactly, without overlap.
// The format: a little-endian u64 n, n bytes of JSON, the data.
func readSafetensors(s section) ([]tensor, error) {
	var prefix [8]byte
	if s.size < 8 {
		return nil, fmt.Errorf("%s: %d bytes, expected a safetensors header", s.name, s.size)
	}
	if _, err := io.ReadFull(io.NewSectionReader(s.r, s.off, 8), prefix[:]); err != nil {
		return nil, fmt.Errorf("%s: header: %w", s.name, err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > maxHeaderBytes || int64(n) > s.size-8 {
		return nil, fmt.Errorf("%s: header of %d bytes in a file of %d, expected at most %d", s.name, n, s.size, maxHeaderBytes)
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(s.r, s.off+8, int64(n)), header); err != nil {
		return nil, fmt.Errorf("%s: header: %w", s.name, err)
	}
	data := section{name: s.name, r: s.r, off: s.off + 8 + int64(n), size: s.size - 8 - int64(n)}
	list, err := parseSafetensorsHeader(header, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return list, nil
}

// headerEntry is one tensor in the header.
type headerEntry struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// parseSafetensorsHeader walks the object by hand, because encoding/json would
// let a name come twice.
func parseSafetensorsHeader(header []byte, data section) ([]tensor, error) {
	dec := json.NewDecoder(bytes.NewReader(header))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("header is not a JSON object")
	}
	var list []tensor
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
		name := key.(string) // the decoder lets nothing else stand before a colon
		if name == "__metadata__" {
			var ignored map[string]string
			if err := dec.Decode(&ignored); err != nil {
				return nil, fmt.Errorf("header: __metadata__: %w", err)
			}
			continue
		}
		var e headerEntry
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("header: tensor %q: %w", name, err)
		}
		t, err := e.tensor(name, data)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		list = append(list, t)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("header: text after the JSON object")
	}
	return list, checkCover(list, data.size)
}

func (e headerEntry) tensor(name string, data section) (tensor, error) {
	var t tensor
	dtype, err := parseDType(e.DType)
	if err != nil {
		return t, err
	}
	n, err := elements(e.Shape)
	if err != nil {
		return t, err
	}
	if len(e.Offsets) != 2 {
		return t, fmt.Errorf("data_offsets %v, expected two numbers", e.Offsets)
	}
	begin, end := e.Offsets[0], e.Offsets[1]
	if begin < 0 || end < begin || end > data.size {
		return t, fmt.Errorf("data_offsets %v outside the %d bytes of data", e.Offsets, data.size)
	}
	if want := n * int64(dtype.Bytes()); end-begin != want {
		return t, fmt.Errorf("data_offsets %v are %d bytes, expected %d for %s of shape %v", e.Offsets, end-begin, want, dtype, e.Shape)
	}
	return tensor{
		TensorInfo: TensorInfo{Name: name, DType: dtype, Shape: ints(e.Shape)},
		data:       data,
		start:      begin,
	}, nil
}

// checkCover holds the ranges to the format's rule: one after the other, no
// byte shared and none left over. It sorts list by position.
func checkCover(list []tensor, size int64) error {
	end := func(t tensor) int64 { return t.start + int64(t.Elements()*t.DType.Bytes()) }
	slices.SortStableFunc(list, func(a, b tensor) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(end(a), end(b)))
	})
	at := int64(0)
	for _, t := range list {
		if t.start != at {
			return fmt.Errorf("tensor %q starts at byte %d of the data, expected %d: ranges overlap or leave a gap", t.Name, t.start, at)
		}
		at = end(t)
	}
	if at != size {
		return fmt.Errorf("tensors cover %d bytes, but the file holds %d", at, size)
	}
	return nil
}

func parseDType(s string) (DType, error) {
	for d := F32; d <= I64; d++ {
		if s == d.String() {
			return d, nil
		}
	}
	return 0, fmt.Errorf("dtype %q, expected F32, F16, BF16 or I64", s)
}
