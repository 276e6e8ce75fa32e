//go:build !linux && !darwin

package store

// freeBytes does not know on this system.
func freeBytes(string) (int64, error) { return -1, nil }

// syncFolder has nothing to do: not every system can sync a folder, and those that can are in files_unix.go.
func syncFolder(string) error { return nil }
