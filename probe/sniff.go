package probe

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

// signature is how bytes of a kind that is not decoded are known.
type signature struct {
	name  string // "an MP3 file": completes "looks like"
	audio bool   // it holds audio, or may
	at    int
	magic string
	also  func(head []byte) bool // nil, or a further test
}

// signatures are looked through in order; weak ones stand last. The names of audio formats say what a later version may add.
var signatures = []signature{
	{"a WavPack file", true, 0, "wvpk", nil},
	{"a Monkey's Audio file", true, 0, "MAC ", nil},
	{"a Musepack file", true, 0, "MPCK", nil},
	{"a Musepack file", true, 0, "MP+", nil},
	{"a True Audio file", true, 0, "TTA1", nil},
	{"a DSD file", true, 0, "DSD ", nil},
	{"a DSD file", true, 0, "FRM8", nil},
	{"an AMR file", true, 0, "#!AMR", nil},
	{"a Flash video", true, 0, "FLV\x01", nil},
	{"an MPEG program stream", true, 0, "\x00\x00\x01\xba", nil},
	{"a RealMedia file", true, 0, ".RMF", nil},

	{"a WebP image", false, 8, "WEBP", starts("RIFF")},
	{"a MIDI file", false, 0, "MThd", nil},
	{"a MIDI file", false, 8, "RMID", starts("RIFF")},
	{"a PNG image", false, 0, "\x89PNG", nil},
	{"a JPEG image", false, 0, "\xff\xd8\xff", nil},
	{"a GIF image", false, 0, "GIF8", nil},
	{"a PDF document", false, 0, "%PDF", nil},
	{"a ZIP archive", false, 0, "PK\x03\x04", nil},
	{"a gzip archive", false, 0, "\x1f\x8b", nil},
	{"a bzip2 archive", false, 0, "BZh", nil},
	{"an xz archive", false, 0, "\xfd7zXZ\x00", nil},
	{"a Zstandard archive", false, 0, "\x28\xb5\x2f\xfd", nil},
	{"a 7-Zip archive", false, 0, "7z\xbc\xaf\x27\x1c", nil},
	{"a RAR archive", false, 0, "Rar!\x1a\x07", nil},
	{"a tar archive", false, 257, "ustar", nil},
	{"a program", false, 0, "\x7fELF", nil},
	{"an SQLite database", false, 0, "SQLite format 3\x00", nil},
	{"a tracker module", false, 1080, "M.K.", nil},
	{"a tracker module", false, 1080, "4CHN", nil},
	{"a tracker module", false, 1080, "8CHN", nil},
	{"a tracker module", false, 0, "Extended Module: ", nil},
	{"a tracker module", false, 0, "IMPM", nil},
	{"a tracker module", false, 44, "SCRM", nil},

	{"a playlist", false, 0, "#EXTM3U", nil},
	{"a concatenation script of ffmpeg", false, 0, "ffconcat version", nil},
	{"a session description (SDP)", false, 0, "v=0", isText},
	{"an HTML page", false, 0, "", isHTML},
	{"an XML document", false, 0, "<?xml", nil},
	{"a JSON document", false, 0, "", isJSON},
	{"text", false, 0, "", isText},

	{"a raw AC-3 file", true, 0, "\x0b\x77", nil},
}

// foreign refuses bytes that no format knows, and says what they look like.
func foreign(s *source) error {
	head := s.head
	if !slices.ContainsFunc(head, func(b byte) bool { return b != 0 }) {
		return unsupported("The file starts with %d zero bytes, which is no audio format.", len(head))
	}
	if sig, ok := knownAs(head); ok {
		if sig.audio {
			return unsupported("The file looks like %s; that format is not supported yet.", sig.name)
		}
		e := aviary.Errorf(aviary.CodeMediaTypeUnsupported, "", "The file looks like %s, not like a recording.", sig.name)
		e.Hint = "Send a recording: WAV, FLAC, MP3, Ogg, WebM or M4A."
		return e
	}
	return unsupported("The file starts with %x, which no known audio format does.", head[:min(len(head), 12)])
}

// knownAs finds the signature of a file.
func knownAs(head []byte) (signature, bool) {
	for _, sig := range signatures {
		end := sig.at + len(sig.magic)
		if len(head) >= end && string(head[sig.at:end]) == sig.magic && (sig.also == nil || sig.also(head)) {
			return sig, true
		}
	}
	return signature{}, false
}

func starts(magic string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }
}

// isText is true of UTF-8 without control characters but for white space.
func isText(head []byte) bool {
	for utf8.FullRune(head) { // the last character may be cut off
		r, n := utf8.DecodeRune(head)
		if r == utf8.RuneError && n == 1 || r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", r) || r == 0x7f {
			return false
		}
		head = head[n:]
	}
	return true
}

func isHTML(head []byte) bool {
	text := strings.ToLower(strings.TrimSpace(string(bytes.TrimPrefix(head[:min(len(head), 256)], []byte("\xef\xbb\xbf")))))
	return strings.HasPrefix(text, "<!doctype html") || strings.HasPrefix(text, "<html") || strings.HasPrefix(text, "<head") ||
		strings.HasPrefix(text, "<body")
}

func isJSON(head []byte) bool {
	text := strings.TrimSpace(string(head[:min(len(head), 64)]))
	return isText(head) && (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "["))
}
