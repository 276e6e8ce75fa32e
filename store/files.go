package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/aviary-asr/aviary"
)

// files keeps blobs as files: FOLDER/staging for what is being written, FOLDER/XX/KEY for what is committed, where XX spreads the keys over
// 256 folders. Both lie in one file system, so that a rename makes a blob appear at once and whole.
type files struct{ root string }

const (
	stagingFolder = "staging"
	folders       = 256
	// orphanAge is how long a staged file may go unwritten before it counts as left behind by a process that died.
	orphanAge = time.Hour
)

func openFiles(_ context.Context, rest string) (aviary.Blobs, error) {
	path, err := localPath(rest)
	if err != nil {
		return nil, fmt.Errorf("blob URL: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("blob URL: %w", err)
	}
	f := files{root: path}
	if err := f.prepare(); err != nil {
		return nil, fmt.Errorf("open the blob folder %s: %w", path, err)
	}
	return f, nil
}

// prepare makes all folders, so that Commit has only one folder to sync, and sweeps the staging folder. It goes by age alone, since other
// processes may be writing there.
func (f files) prepare() error {
	_, err := os.Stat(f.root)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(filepath.Join(f.root, stagingFolder), 0o700); err != nil {
		return err
	}
	for i := range folders {
		if err := os.Mkdir(filepath.Join(f.root, folderName(i)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := syncFolder(f.root); err != nil {
		return err
	}
	if fresh {
		if err := syncFolder(filepath.Dir(f.root)); err != nil {
			return err
		}
	}
	return f.sweep(time.Now().Add(-orphanAge))
}

// Sweep removes what processes left in the staging folder that died: files that nobody has written to for long.
func (f files) Sweep(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.sweep(time.Now().Add(-orphanAge))
}

// sweep removes staged files that were last written before then.
func (f files) sweep(before time.Time) error {
	staging := filepath.Join(f.root, stagingFolder)
	entries, err := os.ReadDir(staging)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // committed or discarded meanwhile
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || !info.ModTime().Before(before) {
			continue
		}
		if err := os.Remove(filepath.Join(staging, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Path is where the blob of a key lies, for people.
func (f files) Path(key string) string { return f.path(key) }

// path is where the blob of a checked key lies.
func (f files) path(key string) string {
	return filepath.Join(f.root, folderName(folderOf(key)), key)
}

// folderOf is the number of the folder that a key belongs to.
func folderOf(key string) int { return int(sha256.Sum256([]byte(key))[0]) }

func folderName(n int) string { return fmt.Sprintf("%02x", n) }

// Stage implements aviary.Blobs.
func (f files) Stage(ctx context.Context) (aviary.Staged, error) {
	const op = "blobs.stage"
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	file, err := os.CreateTemp(filepath.Join(f.root, stagingFolder), "upload-")
	if err != nil {
		return nil, unstored(op, err)
	}
	return &stagedFile{files: f, file: file}, nil
}

// Open implements aviary.Blobs.
func (f files) Open(ctx context.Context, key string) (aviary.Blob, error) {
	const op = "blobs.open"
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := checkKey(op, key); err != nil {
		return nil, err
	}
	file, err := os.Open(f.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, aviary.Errorf(aviary.CodeNotFound, op, "There is no blob %q.", key)
	}
	if err != nil {
		return nil, blobError(op, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, blobError(op, errors.Join(err, file.Close()))
	}
	return openFile{file, info.Size()}, nil
}

// openFile is a committed blob; nobody writes to it any more.
type openFile struct {
	*os.File
	size int64
}

// Size implements aviary.Blob.
func (o openFile) Size() int64 { return o.size }

// Delete implements aviary.Blobs.
func (f files) Delete(ctx context.Context, key string) error {
	const op = "blobs.delete"
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := checkKey(op, key); err != nil {
		return err
	}
	path := f.path(key)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	return blobError(op, err)
}

// List implements aviary.Blobs. The order is that of the folders and of the keys within a folder, so that a page reads the names of few folders, each
// one part in 256 of all, and not of all of them. What is no blob of ours, by its name or its place, is left out.
func (f files) List(ctx context.Context, after string, limit int) ([]aviary.BlobInfo, error) {
	const op = "blobs.list"
	first := 0
	if after != "" {
		if err := checkKey(op, after); err != nil {
			return nil, err
		}
		first = folderOf(after)
	}
	var list []aviary.BlobInfo
	for folder := first; folder < folders && len(list) < limit; folder++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		if folder != first {
			after = "" // all keys of a later folder come after it
		}
		more, err := f.listFolder(folder, after, limit-len(list))
		if err != nil {
			return nil, blobError(op, err)
		}
		list = append(list, more...)
	}
	return list, ctx.Err()
}

// listFolder lists the blobs of one folder whose keys are greater than after.
func (f files) listFolder(folder int, after string, limit int) ([]aviary.BlobInfo, error) {
	entries, err := os.ReadDir(filepath.Join(f.root, folderName(folder))) // in the order of their names
	if err != nil {
		return nil, err
	}
	var list []aviary.BlobInfo
	for _, e := range entries {
		key := e.Name()
		if key <= after || key == aviary.SystemBlob || !e.Type().IsRegular() || checkKey("", key) != nil || folderOf(key) != folder {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		if list = append(list, aviary.BlobInfo{Key: key, Modified: info.ModTime()}); len(list) == limit {
			break
		}
	}
	return list, nil
}

// FreeBytes implements aviary.Blobs.
func (f files) FreeBytes(ctx context.Context) (int64, error) {
	const op = "blobs.free"
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	free, err := freeBytes(f.root)
	return free, unstored(op, err)
}

// stagedFile is a blob being written. It is not safe for use from several goroutines.
type stagedFile struct {
	files files
	file  *os.File
	size  int64
	ended bool // committed or discarded
}

// Write implements io.Writer.
func (s *stagedFile) Write(p []byte) (int, error) {
	const op = "blobs.write"
	n, err := s.file.Write(p)
	s.size += int64(n)
	return n, blobError(op, err)
}

// ReadAt implements io.ReaderAt.
func (s *stagedFile) ReadAt(p []byte, off int64) (int, error) { return s.file.ReadAt(p, off) }

// WriteAt implements io.WriterAt, over bytes that were written before.
func (s *stagedFile) WriteAt(p []byte, off int64) (int, error) {
	const op = "blobs.write"
	if off < 0 || int64(len(p)) > s.size-off {
		return 0, aviary.WrapError(aviary.CodeInternal, op, fmt.Errorf("%d bytes at %d of %d", len(p), off, s.size), "The storage failed.")
	}
	n, err := s.file.WriteAt(p, off)
	return n, blobError(op, err)
}

// Size implements aviary.Staged.
func (s *stagedFile) Size() int64 { return s.size }

// Commit implements aviary.Staged: first the bytes reach the disk, then the name. A key that is taken is refused, since jobs share no
// blobs. If it fails, nothing was committed and Discard is still due.
func (s *stagedFile) Commit(ctx context.Context, key string) error {
	const op = "blobs.commit"
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := checkKey(op, key); err != nil {
		return err
	}
	if s.ended {
		return aviary.WrapError(aviary.CodeInternal, op, errors.New("the upload has been committed or discarded already"), "The storage failed.")
	}
	path := s.files.path(key)
	if _, err := os.Lstat(path); err == nil {
		return aviary.Errorf(aviary.CodeStateConflict, op, "There is a blob %q already.", key)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return blobError(op, err)
	}
	if err := errors.Join(s.file.Sync(), s.file.Close()); err != nil {
		return blobError(op, err)
	}
	if err := publish(s.file.Name(), path); errors.Is(err, fs.ErrExist) {
		return aviary.Errorf(aviary.CodeStateConflict, op, "There is a blob %q already.", key)
	} else if err != nil {
		return blobError(op, err)
	}
	s.ended = true
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return blobError(op, errors.Join(err, os.Remove(path)))
	}
	return nil
}

// publish gives a staged file its name. A second name, unlike a new one, never replaces a file that has appeared meanwhile; where the file system knows
// no second names, the caller's look has to do. The first name is swept some day, if it stays.
func publish(staged, path string) error {
	err := os.Link(staged, path)
	switch {
	case errors.Is(err, fs.ErrExist):
		return err
	case err != nil:
		return os.Rename(staged, path)
	}
	_ = os.Remove(staged)
	return nil
}

// Discard implements aviary.Staged.
func (s *stagedFile) Discard() error {
	const op = "blobs.discard"
	if s.ended {
		return nil
	}
	s.ended = true
	err := s.file.Close()
	if errors.Is(err, os.ErrClosed) { // by a Commit that failed
		err = nil
	}
	return blobError(op, errors.Join(err, os.Remove(s.file.Name())))
}
