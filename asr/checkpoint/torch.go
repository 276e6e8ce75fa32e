package checkpoint

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// readTorch reads the table of contents of a file that torch.save wrote: a zip
// with <root>/data.pkl and the storages <root>/data/<key>, stored uncompressed
// so that they can be read in place.
func readTorch(s section) ([]tensor, error) {
	list, err := parseTorch(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return list, nil
}

func parseTorch(s section) ([]tensor, error) {
	archive := io.NewSectionReader(s.r, s.off, s.size)
	z, err := zip.NewReader(archive, s.size)
	if errors.Is(err, zip.ErrFormat) {
		return nil, errors.New("not a zip: expected what torch.save writes since PyTorch 1.6")
	}
	if err != nil {
		return nil, err
	}
	entries := make(map[string]*zip.File, len(z.File))
	root := ""
	for _, f := range z.File {
		if _, dup := entries[f.Name]; dup {
			return nil, fmt.Errorf("entry %q comes twice", f.Name)
		}
		entries[f.Name] = f
		if path.Base(f.Name) == "data.pkl" {
			if root != "" {
				return nil, fmt.Errorf("entries %q and %q, expected one data.pkl", root+"data.pkl", f.Name)
			}
			root = strings.TrimSuffix(f.Name, "data.pkl")
		}
	}
	pickle, err := readEntry(entries[root+"data.pkl"], maxPickleBytes)
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	if f := entries[root+"byteorder"]; f != nil {
		order, err := readEntry(f, 16)
		if err != nil {
			return nil, fmt.Errorf("byteorder: %w", err)
		}
		if string(order) != "little" {
			return nil, fmt.Errorf("byte order %q, expected little", order)
		}
	}
	items, err := readStateDict(pickle)
	if err != nil {
		return nil, err
	}
	list := make([]tensor, len(items))
	for i, it := range items {
		st := it.tensor.storage
		data, err := storageSection(entries[root+"data/"+st.key], st, archive)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: storage %q: %w", it.name, st.key, err)
		}
		data.name = s.name
		list[i] = it.tensor.place(it.name, data)
	}
	return list, nil
}

// storageSection locates a storage inside the archive.
func storageSection(f *zip.File, st *pyStorage, archive *io.SectionReader) (section, error) {
	if f == nil {
		return section{}, errors.New("not in the archive")
	}
	if f.Method != zip.Store {
		return section{}, errors.New("is compressed, expected it stored")
	}
	want := st.elems * int64(st.dtype.Bytes())
	if f.UncompressedSize64 != uint64(want) || f.CompressedSize64 != uint64(want) {
		return section{}, fmt.Errorf("%d bytes, expected %d for %d elements of %s", f.UncompressedSize64, want, st.elems, st.dtype)
	}
	off, err := f.DataOffset()
	if err != nil {
		return section{}, err
	}
	if off < 0 || off > archive.Size()-want {
		return section{}, errors.New("lies outside the archive")
	}
	return section{r: archive, off: off, size: want}, nil
}

// place turns the view into a tensor over the storage's bytes.
func (t *pyTensor) place(name string, data section) tensor {
	out := tensor{
		TensorInfo: TensorInfo{Name: name, DType: t.storage.dtype, Shape: ints(t.shape)},
		data:       data,
		start:      t.offset * int64(t.storage.dtype.Bytes()),
	}
	if !t.rowMajorNoHoles {
		out.strides = ints(t.strides)
	}
	return out
}

// readEntry reads a small entry whole; archive/zip checks its length and CRC.
func readEntry(f *zip.File, limit int64) ([]byte, error) {
	if f == nil {
		return nil, errors.New("not in the archive")
	}
	if f.UncompressedSize64 > uint64(limit) {
		return nil, fmt.Errorf("%d bytes, expected at most %d", f.UncompressedSize64, limit)
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	data, err := readLimited(r, limit)
	return data, errors.Join(err, r.Close())
}

// readLimited reads to the end and fails past limit.
func readLimited(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return data, err
}
