package matroska

import (
	"bytes"
	"math"
	"slices"
)

// trackTypeAudio is the TrackType of audio (RFC 9559, section 5.1.4.1.3).
const trackTypeAudio = 2

// tracks finds the first audio track and counts the others.
func (f *File) tracks(w *window, tracks element) error {
	const most = 1000 // numbers are kept to be compared
	var numbers []uint64
	err := w.children(tracks, func(e element) error {
		if e.id != idTrackEntry {
			return nil
		}
		t, kind, err := readTrack(w, e)
		if err != nil {
			return err
		}
		if len(numbers) == most {
			return damaged(e.at, "the file has more than %d tracks", most)
		}
		if t.number == 0 || slices.Contains(numbers, t.number) {
			return damaged(e.at, "track number %d is not one track's own", t.number)
		}
		numbers = append(numbers, t.number)
		switch {
		case kind != trackTypeAudio:
			f.OtherTracks++
		case f.AudioTracks == 0:
			f.Track = t
			f.AudioTracks++
		default:
			f.AudioTracks++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if f.AudioTracks == 0 {
		return &Error{ErrNoAudio, tracks.at, "none of the file's tracks is audio"}
	}
	return f.Track.complete(w)
}

// readTrack reads a TrackEntry but for what only the chosen track needs. Its strings and numbers are those of any track.
func readTrack(w *window, entry element) (t Track, kind uint64, err error) {
	t = Track{SampleRate: 8000, Channels: 1} // the defaults of the elements
	t.private.size, t.encodings.size = unknown, unknown
	err = w.children(entry, func(e element) (err error) {
		switch e.id {
		case idTrackNumber:
			t.number, err = w.uint(e)
		case idTrackType:
			kind, err = w.uint(e)
		case idCodecID:
			t.CodecID, err = w.text(e)
		case idCodecPrivate:
			t.private = e
		case idCodecDelay:
			t.CodecDelayNanos, err = w.uint(e)
		case idContentEncodings:
			t.encodings = e
		case idAudio:
			err = t.audio(w, e)
		}
		return err
	})
	return t, kind, err
}

func (t *Track) audio(w *window, audio element) error {
	return w.children(audio, func(e element) (err error) {
		var v uint64
		switch e.id {
		case idSamplingFrequency:
			t.SampleRate, err = w.float(e)
		case idOutputFrequency:
			t.OutputRate, err = w.float(e)
		case idChannels:
			v, err = w.uint(e)
			t.Channels = int(min(v, math.MaxInt32))
		case idBitDepth:
			v, err = w.uint(e)
			t.BitDepth = int(min(v, math.MaxInt32))
		}
		return err
	})
}

// complete reads the rest of the chosen track.
func (t *Track) complete(w *window) error {
	if t.encodings.size != unknown {
		if err := t.contentEncodings(w); err != nil {
			return err
		}
	}
	if t.private.size == unknown {
		return nil
	}
	if t.private.size > maxPrivateBytes {
		return unsupported(t.private.at, "a codec header of %d bytes", t.private.size)
	}
	w.at = t.private.body
	t.Private = make([]byte, t.private.size)
	return w.copyTo(t.Private)
}

// contentEncodings reads how packets are packed (RFC 9559, section 5.1.4.1.31): not at all, or without what all of them begin with.
func (t *Track) contentEncodings(w *window) error {
	const stripping, blocks, longest = 3, 1, 1 << 10
	n := 0
	return w.children(t.encodings, func(e element) error {
		if e.id != idContentEncoding {
			return nil
		}
		if n++; n > 1 {
			return unsupported(e.at, "packets that are encoded more than once")
		}
		scope, kind, algorithm := uint64(blocks), uint64(0), uint64(0)
		err := w.children(e, func(e element) (err error) {
			switch e.id {
			case idEncodingScope:
				scope, err = w.uint(e)
			case idEncodingType:
				kind, err = w.uint(e)
			case idCompression:
				err = w.children(e, func(e element) (err error) {
					switch e.id {
					case idCompressionAlgo:
						algorithm, err = w.uint(e)
					case idCompressionSetting:
						var b []byte
						b, err = w.content(e, longest)
						t.stripped = bytes.Clone(b)
					}
					return err
				})
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case kind != 0:
			return unsupported(e.at, "encrypted audio")
		case algorithm != stripping:
			return unsupported(e.at, "compressed packets (algorithm %d)", algorithm)
		case scope != blocks:
			return unsupported(e.at, "a codec header that is compressed")
		}
		return nil
	})
}
