package store

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store/storetest"
)

// place opens a folder of blobs.
func place(t *testing.T, folder string) aviary.Blobs {
	t.Helper()
	blobs, err := OpenBlobs(t.Context(), "file:"+folder)
	if err != nil {
		t.Fatal(err)
	}
	return blobs
}

// put commits a blob.
func put(ctx context.Context, blobs aviary.Blobs, key string) error {
	staged, err := blobs.Stage(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(staged, key)
	if err == nil {
		err = staged.Commit(ctx, key)
	}
	return errors.Join(err, staged.Discard())
}

// Processes that start at once on a new system agree on the marker when they have one folder, and on one of their folders when they have several.
func TestPlacesAreBoundAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, b storetest.Backend) {
		for _, folders := range []int{1, 4} {
			url, base := b.New(t), t.TempDir()
			s, second := reopenTest(t, url, Options{volatile: true}), reopenTest(t, url, Options{volatile: true})
			places := make([]aviary.Blobs, folders)
			for i := range places {
				places[i] = place(t, filepath.Join(base, string(rune('a'+i))))
			}
			errs := make([]error, 8)
			var starting sync.WaitGroup
			for i := range errs {
				starting.Go(func() {
					_, errs[i] = aviary.BindBlobs(t.Context(), places[i%folders], []aviary.Store{s, second}[i%2])
				})
			}
			starting.Wait()
			good := map[int]bool{}
			for i, err := range errs {
				switch {
				case err == nil:
					good[i%folders] = true
				case !errors.Is(err, aviary.ErrStorageAway):
					t.Error(err)
				}
			}
			if len(good) != 1 {
				t.Fatalf("%d of %d folders are the place of one system: %v", len(good), folders, errs)
			}
			for i, err := range errs {
				if good[i%folders] != (err == nil) {
					t.Errorf("start %d, in folder %d: %v", i, i%folders, err)
				}
			}
			for i := range places {
				if _, err := aviary.BindBlobs(t.Context(), places[i], s); good[i] != (err == nil) {
					t.Errorf("a later start in folder %d: %v", i, err)
				}
			}
		}
	})
}

// A place is taken by the first system that starts there, and refused when it is not what the database says.
func TestBindBlobs(t *testing.T) {
	t.Parallel()
	ctx, o := t.Context(), Options{volatile: true}
	tests := []struct {
		name    string
		arrange func(t *testing.T, s aviary.Store, folder string)
		refusal string // empty: it is bound
	}{
		{"a new system", func(*testing.T, aviary.Store, string) {}, ""},
		{"one that was bound", func(t *testing.T, s aviary.Store, folder string) { bind(t, s, folder) }, ""},
		{"an older version's, with its recordings", func(t *testing.T, s aviary.Store, folder string) {
			mustPut(t, place(t, folder), "job_1")
			mustCreate(t, s, "job_1")
		}, ""},
		{"an older version's, without", func(t *testing.T, s aviary.Store, folder string) { mustCreate(t, s, "job_1") }, "not a single recording: is the disk mounted?"},
		{"the marker is gone", func(t *testing.T, s aviary.Store, folder string) {
			bind(t, s, folder)
			remove(t, folder)
		}, "is the disk mounted"},
		{"the place of another system", func(t *testing.T, _ aviary.Store, folder string) {
			bind(t, reopenTest(t, volatile.New(t), o), folder)
		}, "belongs to the system"},
		{"an empty marker", func(t *testing.T, _ aviary.Store, folder string) {
			place(t, folder)
			write(t, folder, "")
		}, `belongs to the system "(nobody)"`},
		{"another place of this system", func(t *testing.T, s aviary.Store, folder string) {
			bind(t, s, folder+"-2")
			id, err := s.SystemID(ctx)
			if err != nil {
				t.Fatal(err)
			}
			place(t, folder)
			write(t, folder, id+"/x")
		}, "not the place that the other processes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, folder := reopenTest(t, volatile.New(t), o), filepath.Join(t.TempDir(), "blobs")
			tt.arrange(t, s, folder)
			_, err := aviary.BindBlobs(t.Context(), place(t, folder), s)
			if tt.refusal == "" && err != nil {
				t.Error(err)
			}
			if tt.refusal != "" && (!errors.Is(err, aviary.ErrStorageAway) || !strings.Contains(err.Error(), tt.refusal)) {
				t.Errorf("got %v, want %q", err, tt.refusal)
			}
		})
	}
}

func bind(t *testing.T, s aviary.Store, folder string) *aviary.BoundBlobs {
	t.Helper()
	bound, err := aviary.BindBlobs(t.Context(), place(t, folder), s)
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

func mustPut(t *testing.T, blobs aviary.Blobs, key string) {
	t.Helper()
	if err := put(t.Context(), blobs, key); err != nil {
		t.Fatal(err)
	}
}

func mustCreate(t *testing.T, s aviary.Store, id string) {
	t.Helper()
	if _, err := s.CreateJob(t.Context(), aviary.Job{ID: id, BlobKey: id}, aviary.QueueLimits{}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, folder string) {
	t.Helper()
	if err := os.Remove(files{folder}.path(aviary.SystemBlob)); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, folder, marker string) {
	t.Helper()
	if err := os.WriteFile(files{folder}.path(aviary.SystemBlob), []byte(marker), 0o600); err != nil {
		t.Fatal(err)
	}
}

// While the folder is another one, or has no marker, nothing is said to be missing, nothing is taken and nothing deleted; and what the refusal says to do about
// a lost marker helps.
func TestBoundBlobsWhileTheDiskIsAway(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), reopenTest(t, volatile.New(t), Options{volatile: true})
	folder := filepath.Join(t.TempDir(), "blobs")
	bound := bind(t, s, folder)
	mustPut(t, bound, "job_1")
	if _, err := bound.Open(ctx, "job_2"); aviary.CodeOf(err) != aviary.CodeNotFound {
		t.Errorf("a blob that is missing: %v", err)
	}
	staged, err := bound.Stage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(folder, folder+"-away"); err != nil {
		t.Fatal(err)
	}
	for _, mount := range []string{"none", "an empty folder", "another system's"} {
		switch mount {
		case "an empty folder":
			place(t, folder)
		case "another system's":
			bind(t, reopenTest(t, volatile.New(t), Options{volatile: true}), folder)
		}
		_, opening := bound.Open(ctx, "job_1")
		_, listing := bound.List(ctx, "", 1)
		for what, err := range map[string]error{
			"open": opening, "list": listing, "put": put(ctx, bound, "job_3"), "commit": staged.Commit(ctx, "job_4"), "delete": bound.Delete(ctx, "job_1"), "check": bound.Check(ctx),
		} {
			want := aviary.CodeStoreUnavailable
			if what == "delete" {
				want = aviary.CodeInternal
			}
			if !errors.Is(err, aviary.ErrStorageAway) || aviary.CodeOf(err) != want {
				t.Errorf("%s: %s: %v", mount, what, err)
			}
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(folder+"-away", folder); err != nil {
		t.Fatal(err)
	}
	if list, err := bound.List(ctx, "", 9); err != nil || len(list) != 1 || list[0].Key != "job_1" {
		t.Errorf("afterwards: %+v, %v", list, err)
	}
	if err := bound.Delete(ctx, aviary.SystemBlob); err == nil {
		t.Error("the marker can be deleted")
	}
	if err := put(ctx, bound, aviary.SystemBlob); err == nil || bound.Check(ctx) != nil {
		t.Error("the marker can be written over")
	}

	remove(t, folder)
	_, err = aviary.BindBlobs(ctx, place(t, folder), s)
	_, told, _ := strings.Cut(err.Error(), "make the file ")
	name, content, ok := strings.Cut(told, " with the content ")
	if !ok || os.WriteFile(name, []byte(content), 0o600) != nil || bound.Check(ctx) != nil {
		t.Errorf("what is to be done does not help: %v", err)
	}
}
