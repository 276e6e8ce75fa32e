package matroska

import (
	"io"
)

// File is an opened file.
type File struct {
	DocType        string  // "webm" or "matroska"
	TimestampScale uint64  // nanoseconds in a unit of timestamps; 1,000,000 where the file does not say
	Duration       float64 // that the file claims, in units of timestamps: any number, also NaN; 0 where it does not say
	Track          Track   // the first audio track
	AudioTracks    int
	OtherTracks    int // tracks that are no audio

	r            io.ReaderAt
	size         int64
	segmentEnd   int64
	firstCluster int64
}

// Track describes a track of audio.
type Track struct {
	CodecID         string
	Private         []byte  // the codec's own header
	SampleRate      float64 // Hz, as claimed: any number
	OutputRate      float64 // Hz, where it differs since the codec doubles it; otherwise 0
	Channels        int     // as claimed; at most math.MaxInt32
	BitDepth        int     // of PCM; 0 where the file does not say
	CodecDelayNanos uint64  // of audio at the start that is not to be heard

	number    uint64
	stripped  []byte // what each packet begins with and the file does not repeat
	private   element
	encodings element
}

// maxPrivateBytes bounds a codec's header. Those of Vorbis have 3 to 30 kB, and more with a picture among their comments.
const maxPrivateBytes = 128 << 10

// Open reads the headers up to the first Cluster. Errors are of type *Error, but for those of r.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{TimestampScale: 1e6, r: r, size: size, firstCluster: unknown}
	w := newWindow(r, size, 0)
	if err := f.head(w); err != nil {
		return nil, err
	}
	segment, err := w.element(size)
	for err == nil && segment.id != idSegment { // Void may stand here
		if segment.size == unknown {
			return nil, damaged(segment.at, "element %X has no size", segment.id)
		}
		w.at = segment.end()
		segment, err = w.element(size)
	}
	if err != nil {
		return nil, err
	}
	f.segmentEnd = size
	if segment.size != unknown {
		f.segmentEnd = segment.end()
	}
	if err := f.segment(w); err != nil {
		return nil, err
	}
	return f, nil
}

// head reads the EBML header (RFC 8794, section 11.2.1).
func (f *File) head(w *window) error {
	e, err := w.element(f.size)
	if err != nil {
		return err
	}
	if e.id != idEBML {
		return damaged(e.at, "the file does not start with an EBML header")
	}
	err = w.children(e, func(e element) (err error) {
		var v uint64
		switch e.id {
		case idDocType:
			f.DocType, err = w.text(e)
		case idEBMLMaxIDLength:
			if v, err = w.uint(e); err == nil && v > 4 {
				err = unsupported(e.at, "element IDs of %d bytes", v)
			}
		case idEBMLMaxSizeLength:
			if v, err = w.uint(e); err == nil && v > 8 {
				err = unsupported(e.at, "element sizes of %d bytes", v)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if f.DocType != "matroska" && f.DocType != "webm" {
		return unsupported(e.at, "EBML of the type %q", f.DocType)
	}
	w.at = e.end()
	return nil
}

// segment reads the Segment's elements up to the first Cluster. The window stands at its content.
func (f *File) segment(w *window) error {
	var tracks, info bool
	for w.at < f.segmentEnd {
		e, err := w.element(f.segmentEnd)
		if err != nil {
			return err
		}
		switch {
		case e.id == idCluster && !tracks:
			return damaged(e.at, "the first cluster comes before any description of tracks")
		case e.id == idCluster:
			f.firstCluster = e.at
			return nil
		case e.size == unknown:
			return damaged(e.at, "element %X has no size", e.id)
		case e.id == idEBML || e.id == idSegment:
			return damaged(e.at, "another file begins within the first")
		case e.id == idInfo && !info:
			info = true
			err = f.info(w, e)
		case e.id == idTracks && !tracks:
			tracks = true
			err = f.tracks(w, e)
		}
		if err != nil {
			return err
		}
		w.at = e.end()
	}
	if !tracks {
		return damaged(w.at, "the file describes no tracks")
	}
	return damaged(w.at, "the file ends behind its headers and holds no audio")
}

func (f *File) info(w *window, info element) error {
	return w.children(info, func(e element) (err error) {
		switch e.id {
		case idTimestampScale:
			f.TimestampScale, err = w.uint(e)
		case idDuration:
			f.Duration, err = w.float(e)
		}
		return err
	})
}
