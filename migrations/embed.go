// Package migrations holds the schema of the store as numbered SQL files, one folder per database. It does nothing by itself: package
// store applies the files in order, once each. They only go forward; a file that has been released never changes.
package migrations

import "embed"

// Files holds one folder per dialect, sqlite and postgres, with files named NNNNN_what.sql that number from 00001 without a gap. Each
// dialect has the same files: a schema version means the same in all of them.
//
//go:embed postgres/*.sql sqlite/*.sql
var Files embed.FS
