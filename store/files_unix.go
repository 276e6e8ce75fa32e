//go:build linux || darwin

package store

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes is the room that is left to this process in the file system of a folder.
func freeBytes(folder string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", folder, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // other systems have other types
}

// syncFolder makes the names in a folder durable.
func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // nothing was written through it
	return d.Sync()
}
