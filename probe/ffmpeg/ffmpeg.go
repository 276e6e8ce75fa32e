// Package ffmpeg runs an installed ffmpeg as a decoder: a process that reads coded audio from a pipe and writes samples to another.
package ffmpeg

// Command is an installed ffmpeg.
type Command struct {
	Path    string // absolute
	Version string // as it says itself, "5.1.9"
}
