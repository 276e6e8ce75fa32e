package probe

import "context"

// track is the audio of an opened file. It can be counted at any time, and decoded once.
type track interface {
	// about tells what the header says. Its warnings can be more after count and read, which may find some.
	about() about
	// count says how many sample frames are there to be heard. It may stop when there are more than most.
	count(ctx context.Context, most int64) (int64, error)
	// read decodes the next sample frames into dst, interleaved, each within no bounds and perhaps not finite. It gives at least one frame or an
	// error, which is io.EOF at the end. dst has room for at least one frame.
	read(ctx context.Context, dst []float32) (frames int, err error)
	// close gives back what read needed. It can be called more than once.
	close()
}

// about is what a header tells.
type about struct {
	container, codec string
	rate, channels   int   // within the limits below
	claimed          int64 // sample frames by the header; unknown if it does not say
	held             int64 // sample frames that are there, where that follows without reading them; otherwise unknown
	loose            int64 // sample frames by which claim, count and decoded samples may differ besides slack: padding that no header tells of
	bits             int   // of a sample, where it has more than 16
	anyScale         bool  // samples are floats, which some programs write at the scale of integers
	// decodesToCount says that count decodes: then it is not worth doing before decoding.
	decodesToCount bool
	warnings       []string // what a user should know about the file, as sentences
}

const unknown = -1
