package store

import (
	"context"
	"errors"
	"syscall"

	"github.com/aviary-asr/aviary"
)

// blobBackends says which URL scheme is served by what. A new object store is a line here and a file beside files.go.
var blobBackends = map[string]func(ctx context.Context, rest string) (aviary.Blobs, error){
	"file": openFiles,
}

// OpenBlobs opens the blob store that url names: file:FOLDER or file:///FOLDER, which is created where it is missing. Several processes may
// have the same folder open.
func OpenBlobs(ctx context.Context, url string) (aviary.Blobs, error) {
	open, rest, err := pick("blob", blobBackends, url)
	if err != nil {
		return nil, err
	}
	return open(ctx, rest)
}

// FreeBytes is the room that is left to this process in the file system of a folder; negative where that cannot be known.
func FreeBytes(folder string) (int64, error) { return freeBytes(folder) }

// checkKey refuses names that a backend could misread, above all paths: a key is 1 to 128 letters, digits, dots, dashes and underscores, and
// does not start with a dot.
func checkKey(op, key string) error {
	const longest = 128
	ok := len(key) >= 1 && len(key) <= longest && key[0] != '.'
	for _, c := range []byte(key) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || c == '.' || c == '-' || c == '_')
	}
	if !ok {
		return aviary.Errorf(aviary.CodeMalformedRequest, op, "The name %q is not one a blob can have.", key)
	}
	return nil
}

// blobError gives an error of the file system a code.
func blobError(op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return aviary.WrapError(aviary.CodeStorageFull, op, err, "The server has no room for this.")
	}
	return aviary.WrapError(aviary.CodeInternal, op, err, "The storage failed.")
}

// unstored is blobError where nothing was stored, and nothing can have been: another try is safe.
func unstored(op string, err error) error {
	failed := blobError(op, err)
	if aviary.CodeOf(failed) != aviary.CodeInternal {
		return failed
	}
	return aviary.WrapError(aviary.CodeStoreUnavailable, op, err, "The storage cannot be used.")
}
