package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/aviary-asr/aviary"
)

// A process that has SQLite's files open goes on with them when they are deleted, or others are put in their place, and nothing fails: what it
// commits then is gone when it ends. The write-ahead log holds the newest commits, and through the shared memory processes learn of each other, so
// that either matters as much as the database itself. They stay the same files as long as anybody has the database open.
//
// Files that are overwritten in place cannot be told by this; SQLite's own checks may find the damage.

// sqliteFile is a file as it was when the database was opened.
type sqliteFile struct {
	path string
	info os.FileInfo
}

// filesOf notes the files of a database that has been opened and read.
func filesOf(path string) ([]sqliteFile, error) {
	var list []sqliteFile
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if suffix != "" && errors.Is(err, fs.ErrNotExist) { // a file system without shared memory, say
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, sqliteFile{path + suffix, info})
	}
	return list, nil
}

// unmoved fails if one of the files is not where it was. It opens none: to close one would end SQLite's locks of it, which belong to the whole process.
func unmoved(op string, list []sqliteFile) error {
	for _, file := range list {
		switch info, err := os.Stat(file.path); {
		case err != nil:
			return movedError(op, fmt.Errorf("the database file %s was deleted or moved while it was in use (%w): put that very file back, or restart; "+
				"what is not in the file then is lost", file.path, err))
		case !os.SameFile(info, file.info):
			return movedError(op, fmt.Errorf("the database file %s was replaced by another one while it was in use: put the first one back, or restart "+
				"to go on with the one that is there; to restore a copy, stop all servers first", file.path))
		}
	}
	return nil
}

func movedError(op string, err error) error {
	return aviary.WrapError(aviary.CodeStoreUnavailable, op, err, "The store cannot be used: its files were moved.")
}
