// Package migrations holds the schema of the store as numbered SQL files, one folder per database. It does nothing by itself: package
// store applies the files in order, once each. They only go forward; a file that has been released never changes.
package migrations

import "embed"

// Files holds one folder per dialect, for now sqlite, with files named NNNNN_what.sql that number from 00001 without a gap.
//
//go:embed sqlite/*.sql
var Files embed.FS
