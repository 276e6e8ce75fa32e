package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Open reads the checkpoint at path: a Hugging Face directory, a directory
// with exactly one .nemo file, or a .nemo file. Where a directory has both, as
// NVIDIA publishes them, it reads the Hugging Face files. Only the headers are
// read; the weights stay in the file until they are asked for, with one
// exception: those of a compressed .nemo are unpacked into a temporary file,
// which Close removes.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	dir, only := path, ""
	if !info.IsDir() {
		dir, only = filepath.Split(path)
		dir = filepath.Clean(dir)
	}
	c, err := openDirectory(&directory{fsys: os.DirFS(dir)}, only)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", path, err)
	}
	return c, nil
}

// OpenFS is Open for a directory in fsys, which may be embedded. Its files
// must implement io.ReaderAt.
func OpenFS(fsys fs.FS) (*Checkpoint, error) {
	c, err := openDirectory(&directory{fsys: fsys}, "")
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	return c, nil
}

// openDirectory opens what is in dir, or only the .nemo file of that name.
func openDirectory(dir *directory, only string) (*Checkpoint, error) {
	c := &Checkpoint{}
	var err error
	if only == "" && dir.has(configFile) && (dir.has(weightsFile) || dir.has(weightsIndexFile)) {
		err = openHuggingFace(dir, c)
	} else {
		if only == "" {
			only, err = dir.onlyNemo()
		}
		if err == nil {
			err = openNemo(dir, only, c)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// adopt makes the tensors of a file the checkpoint's: those that are not
// weights are set aside.
func (c *Checkpoint) adopt(list []tensor) (*tensorSet, error) {
	weights := make([]tensor, 0, len(list))
	for _, t := range list {
		if isIgnored(t.Name) {
			c.Ignored = append(c.Ignored, t.Name)
			continue
		}
		if c.Format == NeMo {
			// A name that no Parakeet model has stays as it is, for the strict
			// loader to report.
			if name, ok := CanonicalName(t.Name); ok {
				t.Name = name
			}
		}
		weights = append(weights, t)
	}
	slices.Sort(c.Ignored)
	set, err := newTensorSet(weights)
	if err != nil {
		return nil, err
	}
	c.Tensors = set
	return set, nil
}

// directory is where a checkpoint's files are. Their names are as in fs.FS.
type directory struct{ fsys fs.FS }

func (d *directory) has(name string) bool {
	info, err := fs.Stat(d.fsys, name)
	return err == nil && !info.IsDir()
}

// onlyNemo names the .nemo file of a directory that has exactly one.
func (d *directory) onlyNemo() (string, error) {
	entries, err := fs.ReadDir(d.fsys, ".")
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".nemo") {
			found = append(found, e.Name())
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("expected %s with %s, or one .nemo file; there are %d .nemo files", configFile, weightsFile, len(found))
	}
	return found[0], nil
}

// read gives the content of a small file.
func (d *directory) read(name string, limit int64) ([]byte, error) {
	f, err := d.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := readLimited(f, limit)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// open opens a file for reading in place until the checkpoint is closed.
func (d *directory) open(name string, c *Checkpoint) (section, error) {
	f, err := d.fsys.Open(name)
	if err != nil {
		return section{}, err
	}
	c.closer.add(f.Close)
	info, err := f.Stat()
	if err != nil {
		return section{}, err
	}
	r, ok := f.(io.ReaderAt)
	if !ok || !info.Mode().IsRegular() {
		return section{}, fmt.Errorf("%s: is not a regular file that can be read at any offset", name)
	}
	return section{name: name, r: r, size: info.Size()}, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
