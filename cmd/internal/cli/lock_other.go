//go:build !unix

package cli

import "os"

// locksHold says that a lock keeps nobody out: who has one cannot conclude that others are dead.
const locksHold = false

// lockFile only opens the file: there is no lock that ends with the process here, so that it is up to the operator to run one server on a
// data directory.
func lockFile(name string, _ bool) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
}

// fileID is not known here.
func fileID(os.FileInfo) string { return "" }
