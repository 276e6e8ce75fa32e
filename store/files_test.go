package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// tree lists the files under a folder, relative to it.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			path, err = filepath.Rel(root, path)
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func openFolder(t *testing.T, root string) aviary.Blobs {
	t.Helper()
	b, err := OpenBlobs(t.Context(), "file:"+root)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpenBlobsURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"":                      "no scheme",
		"s3://bucket":           `the scheme "s3"`,
		"file:":                 "names no path",
		"file:DIR/a?b":          "parameters are not supported",
		"file:DIR/file":         "open the blob folder",
		"file:DIR/new/folder":   "",
		"file://DIR/with space": "",
	} {
		b, err := OpenBlobs(t.Context(), strings.ReplaceAll(url, "DIR", dir))
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", url, err)
			}
			continue
		}
		if err == nil || b != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that says %q", url, err, want)
		}
	}
}

// What a dead process left in the staging folder goes at the next start; what a live one is writing stays.
func TestStagingIsSwept(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := openFolder(t, root)
	var staged []aviary.Staged
	for range 2 {
		s, err := b.Stage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("audio")); err != nil {
			t.Fatal(err)
		}
		staged = append(staged, s)
	}
	files := tree(t, root)
	if len(files) != 2 {
		t.Fatalf("two uploads are staged: %v", files)
	}
	dead := staged[0].(*stagedFile).file.Name()
	old := time.Now().Add(-orphanAge - time.Minute)
	if err := os.Chtimes(dead, old, old); err != nil {
		t.Fatal(err)
	}
	openFolder(t, root)
	if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an upload from before an hour: %v", err)
	}
	if err := staged[1].Commit(t.Context(), "job_1"); err != nil {
		t.Errorf("a live upload: %v", err)
	}
	if files := tree(t, root); len(files) != 1 || filepath.Base(files[0]) != "job_1" {
		t.Errorf("files at the end: %v", files)
	}
	if err := staged[0].Commit(t.Context(), "job_0"); err == nil {
		t.Error("an upload that was swept away could be committed")
	}
}

// What lies in the folder and is no blob of ours is not listed, so that nobody deletes it, and does not end the list.
func TestListLeavesOutWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := openFolder(t, root)
	s, err := b.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), "job_1"); err != nil {
		t.Fatal(err)
	}
	foreign := (folderOf("job_1") + 1) % folders
	for _, name := range []string{files{root}.path(".hidden"), files{root}.path("with space"), filepath.Join(root, "job_2"),
		filepath.Join(root, folderName(foreign), "job_1")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(files{root}.path("job_3"), 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := b.List(t.Context(), "", 10)
	if err != nil || len(list) != 1 || list[0].Key != "job_1" {
		t.Errorf("%v, %v; job_1 is the only blob", list, err)
	}
}

// An upload that fails at any point leaves no file behind.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := openFolder(t, root)
	for _, key := range []string{"job_1", "..", "job_1"} {
		s, err := b.Stage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("audio")); err != nil {
			t.Fatal(err)
		}
		_ = s.Commit(t.Context(), key)
		if err := s.Discard(); err != nil {
			t.Error(err)
		}
	}
	if files := tree(t, root); len(files) != 1 {
		t.Errorf("one of three uploads was committed; there are %v", files)
	}
}

func TestDiskFullIsTold(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no device that is always full")
	}
	defer full.Close()
	s := &stagedFile{files: files{t.TempDir()}, file: full}
	if _, err := s.Write([]byte("audio")); aviary.CodeOf(err) != aviary.CodeStorageFull {
		t.Errorf("a write to a full device: %v", err)
	}
	quota := &fs.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}
	for _, err := range []error{quota, fmt.Errorf("sync: %w", quota)} {
		if code := aviary.CodeOf(blobError("test", err)); code != aviary.CodeStorageFull {
			t.Errorf("%v has code %s", err, code)
		}
	}
	if code := aviary.CodeOf(blobError("test", fs.ErrPermission)); code != aviary.CodeInternal {
		t.Errorf("a permission error has code %s", code)
	}
}

// FuzzBlobPath holds the promise that no key, whatever it is, leads out of the store's folder or into its staging area.
func FuzzBlobPath(f *testing.F) {
	for _, key := range []string{"job_1", "..", "a/../../b", "staging", ".", "a\\..\\b", "\x00", "00"} {
		f.Add(key)
	}
	root := filepath.Join(f.TempDir(), "blobs")
	f.Fuzz(func(t *testing.T, key string) {
		if checkKey("fuzz", key) != nil {
			return
		}
		path := files{root}.path(key)
		rel, err := filepath.Rel(root, path)
		if err != nil || path != filepath.Clean(path) || filepath.Base(path) != key || len(filepath.Dir(rel)) != 2 {
			t.Errorf("key %q lies at %q", key, path)
		}
	})
}
