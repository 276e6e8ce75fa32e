package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/aviary-asr/aviary"
)

// Without the folder of the blobs nothing is stored, which is certain: the same call can succeed when the disk is mounted again.
func TestFilesWithoutTheirFolder(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "blobs")
	b, err := OpenBlobs(t.Context(), "file:"+root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(root, root+".aside"); err != nil {
		t.Fatal(err)
	}
	_, staging := b.Stage(t.Context())
	_, measuring := b.FreeBytes(t.Context())
	for what, err := range map[string]error{"to stage": staging, "to measure": measuring} {
		if aviary.CodeOf(err) != aviary.CodeStoreUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.Rename(root+".aside", root); err != nil {
		t.Fatal(err)
	}
	staged, err := b.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Discard(); err != nil {
		t.Error(err)
	}
}
