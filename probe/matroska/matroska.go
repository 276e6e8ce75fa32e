// Package matroska reads the audio of Matroska and WebM files (RFC 9559, on the EBML of RFC 8794) and writes the least of a Matroska file that
// carries one track to a decoder.
//
// The reader goes through a file once, forwards, through a buffer of fixed size; what it need not see it skips. It believes no size that
// the bytes of the file do not bear out, allocates nothing by a claim, and takes time linear in the file. It knows nothing of codecs: packets
// are bytes, and how long they last is the caller's to find out. It may not decode, decompress or decrypt.
//
// The rules, where files contradict themselves:
//
//   - Only the Segment and Clusters may be of unknown size, as in live recordings. A Cluster of unknown size ends where an element begins that
//     cannot be in it, such a Segment at the end of the file.
//   - An element that reaches beyond its parent or the file is damage, and so are bytes that are no element, and a second EBML header or
//     Segment: a file that is cut off or joined is not taken for a part of itself.
//   - Tracks stand before the first Cluster. The first audio track is read; its number must be its own.
package matroska

import (
	"errors"
	"fmt"
)

// Element IDs, with their length marker (RFC 8794, section 17.1, and RFC 9559, section 27.1).
const (
	idEBML               = 0x1A45DFA3
	idEBMLMaxIDLength    = 0x42F2
	idEBMLMaxSizeLength  = 0x42F3
	idDocType            = 0x4282
	idDocTypeVersion     = 0x4287
	idDocTypeReadVersion = 0x4285
	idSegment            = 0x18538067
	idSeekHead           = 0x114D9B74
	idInfo               = 0x1549A966
	idTimestampScale     = 0x2AD7B1
	idDuration           = 0x4489
	idTracks             = 0x1654AE6B
	idTrackEntry         = 0xAE
	idTrackNumber        = 0xD7
	idTrackUID           = 0x73C5
	idTrackType          = 0x83
	idCodecID            = 0x86
	idCodecPrivate       = 0x63A2
	idCodecDelay         = 0x56AA
	idAudio              = 0xE1
	idSamplingFrequency  = 0xB5
	idOutputFrequency    = 0x78B5
	idChannels           = 0x9F
	idBitDepth           = 0x6264
	idContentEncodings   = 0x6D80
	idContentEncoding    = 0x6240
	idEncodingScope      = 0x5032
	idEncodingType       = 0x5033
	idCompression        = 0x5034
	idCompressionAlgo    = 0x4254
	idCompressionSetting = 0x4255
	idCluster            = 0x1F43B675
	idTimestamp          = 0xE7
	idSimpleBlock        = 0xA3
	idBlockGroup         = 0xA0
	idBlock              = 0xA1
	idDiscardPadding     = 0x75A2
	idEncryptedBlock     = 0xAF
	idCues               = 0x1C53BB6B
	idChapters           = 0x1043A770
	idAttachments        = 0x1941A469
	idTags               = 0x1254C367
)

// The kinds of Error.
var (
	ErrDamaged     = errors.New("damaged")
	ErrUnsupported = errors.New("unsupported")
	ErrNoAudio     = errors.New("no audio track")
)

// Error is what is wrong with a file, and where.
type Error struct {
	Kind   error // ErrDamaged, ErrUnsupported or ErrNoAudio
	Offset int64 // the byte
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("matroska: %v at byte %d: %s", e.Kind, e.Offset, e.Reason)
}

func (e *Error) Unwrap() error { return e.Kind }

func damaged(at int64, format string, args ...any) error {
	return &Error{ErrDamaged, at, fmt.Sprintf(format, args...)}
}

func unsupported(at int64, format string, args ...any) error {
	return &Error{ErrUnsupported, at, fmt.Sprintf(format, args...)}
}
