package probe

import (
	"context"
	"encoding/binary"
	"math"
)

// WAV: RIFF WAVE (Microsoft, "Multimedia Programming Interface and Data Specifications", 1991, and "Multiple Channel Audio Data and WAVE
// Files", 2007), its big-endian twin RIFX, and RF64 and BW64 with 64-bit sizes (EBU Tech 3306, ITU-R BS.2088).
//
// The header is read here and not by github.com/go-audio/wav, because that takes the length from the RIFF size field, allocates what
// chunks claim, does not look at the format tag (it decodes float and companded samples to noise) and wraps a size of 0xFFFFFFFF to 0. What
// it does well is decoding integer samples, so that is what it does here: see wavdata.go.
//
// The rules, where files contradict themselves:
//
//   - One fmt chunk, before one data chunk. Chunks that claim to reach beyond the file are damage, and so is a second WAV behind the first.
//   - A data chunk that claims more than there is: what is there counts, and about.duration refuses the file if much is missing.
//   - A data chunk whose size is not known (all ones, or another placeholder of programs that write to a pipe; or 0 with bytes behind it that
//     are no chunks) reaches to the end of the file.
//   - Bytes behind the data that are no chunks count as audio that the header conceals.
//   - The frame size (block align) must be channels x bytes per sample. The byte rate, the RIFF size and the fact chunk are not used.

func sniffWAV(head []byte) bool {
	if len(head) < 12 || string(head[8:12]) != "WAVE" {
		return false
	}
	_, ok := wavContainers[string(head[:4])]
	return ok
}

// wavContainers maps the first four bytes to the container's name.
var wavContainers = map[string]string{"RIFF": "wav", "RIFX": "wav", "RF64": "rf64", "BW64": "bw64"}

// maxWAVChunks bounds the walk through a file of empty chunks.
const maxWAVChunks = 1000

// wavFile is a WAV in the making and then an open one.
type wavFile struct {
	*source
	order  binary.ByteOrder
	wide   bool   // RF64, BW64
	ds64   uint64 // the data size of such
	hasDS  bool
	format *wavFormat
	meta   about

	dataAt, dataBytes int64 // the whole frames that are decoded
	data              *wavData
}

func openWAV(_ context.Context, s *source) (track, error) {
	w := &wavFile{source: s, order: binary.LittleEndian}
	magic := string(s.head[:4])
	w.wide = magic == "RF64" || magic == "BW64"
	if magic == "RIFX" {
		w.order = binary.BigEndian
	}
	w.meta.container = wavContainers[magic]
	if err := w.walk(); err != nil {
		return nil, err
	}
	return w, nil
}

// wavChunk is a chunk's header.
type wavChunk struct {
	id   string
	body int64 // where it starts
	size uint32
}

func (c wavChunk) end() int64 { return c.body + int64(c.size) }

// chunk reads a chunk header. It reports false at the end of the file, and where no chunk can be since the id is not printable.
func (w *wavFile) chunk(at int64) (c wavChunk, ok bool, err error) {
	var b [8]byte
	if at < 0 || w.size-at < int64(len(b)) {
		return c, false, nil
	}
	if err := w.bytes(b[:], at); err != nil {
		return c, false, err
	}
	for _, v := range b[:4] {
		if v < ' ' || v > '~' {
			return c, false, nil
		}
	}
	return wavChunk{string(b[:4]), at + 8, w.order.Uint32(b[4:])}, true, nil
}

// next is where the chunk after c starts: at an even distance, but some writers forget the pad byte.
func (w *wavFile) next(end int64, size uint32) (int64, error) {
	if size%2 == 0 {
		return end, nil
	}
	_, padded, err := w.chunk(end + 1)
	if err != nil || padded {
		return end + 1, err
	}
	if _, bare, err := w.chunk(end); err != nil || bare {
		return end, err
	}
	return end + 1, nil
}

// walk goes through the chunks up to the data.
func (w *wavFile) walk() error {
	at := int64(12)
	for range maxWAVChunks {
		c, ok, err := w.chunk(at)
		if err != nil {
			return err
		}
		if !ok {
			return broken("The WAV file has no data chunk: what should be a chunk at byte %d is not.", at)
		}
		if c.id == "data" {
			return w.setData(c)
		}
		if c.end() > w.size {
			return broken("The WAV chunk %q claims %d bytes, more than the file has.", c.id, c.size)
		}
		switch c.id {
		case "fmt ":
			if w.format != nil {
				return broken("The WAV file has two fmt chunks.")
			}
			if w.format, err = w.parseFormat(c); err != nil {
				return err
			}
		case "ds64":
			if err := w.parseDS64(c); err != nil {
				return err
			}
		}
		if at, err = w.next(c.end(), c.size); err != nil {
			return err
		}
	}
	return broken("The WAV file has more than %d chunks before the data.", maxWAVChunks)
}

// parseDS64 reads the 64-bit data size: it stands behind the 64-bit RIFF size.
func (w *wavFile) parseDS64(c wavChunk) error {
	if !w.wide {
		return nil
	}
	var b [16]byte
	if int64(c.size) < int64(len(b)) {
		return broken("The ds64 chunk has %d bytes.", c.size)
	}
	if err := w.bytes(b[:], c.body); err != nil {
		return err
	}
	w.ds64, w.hasDS = binary.LittleEndian.Uint64(b[8:]), true
	return nil
}

// setData decides which bytes are audio, how many frames they are, and how many the header claims.
func (w *wavFile) setData(c wavChunk) error {
	if w.format == nil {
		return broken("The WAV file has no fmt chunk before its data.")
	}
	frame := int64(w.format.frameBytes())
	there := w.size - c.body
	claim, err := w.claimedBytes(c, there)
	if err != nil {
		return err
	}
	w.meta.codec, w.meta.rate, w.meta.channels = w.format.codec(w.order), w.format.rate, w.format.channels
	w.meta.claimed = unknown
	w.dataAt, w.dataBytes = c.body, there
	held := there
	if claim != unknown {
		w.meta.claimed = claim / frame
		w.dataBytes = min(claim, there)
		concealed, err := w.concealed(c.body+w.dataBytes, claim)
		if err != nil {
			return err
		}
		held = w.dataBytes + concealed
		if durationOf(concealed/frame, w.format.rate) <= slack {
			held = w.dataBytes // junk; it is not decoded
		}
	}
	w.dataBytes -= w.dataBytes % frame
	w.meta.held = held / frame
	return nil
}

// claimedBytes is the data chunk's size by the header, or unknown.
func (w *wavFile) claimedBytes(c wavChunk, there int64) (int64, error) {
	switch {
	case w.wide && w.hasDS && c.size == math.MaxUint32:
		if w.ds64 > math.MaxInt64/2 {
			return 0, broken("The ds64 chunk claims %d bytes of audio, more than any file has.", w.ds64)
		}
		if w.ds64 == 0 {
			return unknown, nil
		}
		return int64(w.ds64), nil
	case c.size == 0:
		concealed, err := w.concealed(c.body, 0)
		if err != nil || concealed == 0 {
			return 0, err
		}
		return unknown, nil
	case int64(c.size) > there && isPlaceholder(c.size):
		return unknown, nil
	}
	return int64(c.size), nil
}

// isPlaceholder knows the sizes that programs write who cannot come back to fill in the right one: 2^32-1 less the header (ffmpeg and most
// others), 2^31-4096 (SoX, eSpeak NG) to 2^31 (arecord).
func isPlaceholder(size uint32) bool {
	const half, page = 1 << 31, 4096
	return size > math.MaxUint32-page || size >= half-page && size <= half
}

// concealed counts the bytes from at on that are not chunks. size is the data chunk's, for its pad byte.
func (w *wavFile) concealed(at, size int64) (int64, error) {
	if at >= w.size {
		return 0, nil
	}
	at, err := w.next(at, uint32(size&1))
	if err != nil {
		return 0, err
	}
	for range maxWAVChunks {
		c, ok, err := w.chunk(at)
		if err != nil {
			return 0, err
		}
		if !ok || c.end() > w.size {
			break
		}
		switch c.id {
		case "RIFF", "RIFX", "RF64", "BW64":
			return 0, broken("Another WAV file follows behind the first.")
		case "data", "fmt ":
			return 0, broken("The WAV file has two %q chunks.", c.id)
		}
		if at, err = w.next(c.end(), c.size); err != nil {
			return 0, err
		}
	}
	return max(w.size-at, 0), nil
}

func (w *wavFile) about() about { return w.meta }

func (w *wavFile) count(context.Context, int64) (int64, error) { return w.meta.held, nil }

func (w *wavFile) close() {}

func (w *wavFile) read(_ context.Context, dst []float32) (int, error) {
	if w.data == nil {
		w.data = newWAVData(w.source, w.dataAt, w.dataBytes, w.format, w.order)
	}
	return w.data.read(dst)
}

var _ track = (*wavFile)(nil)

// Kinds of samples, by format tag (RFC 2361 lists them).
const (
	tagPCM        = 0x0001
	tagFloat      = 0x0003
	tagALaw       = 0x0006
	tagMuLaw      = 0x0007
	tagExtensible = 0xFFFE
)

// wavTags names tags whose samples are coded in ways that are not decoded here.
var wavTags = map[uint16]string{
	0x0002: "Microsoft ADPCM", 0x0010: "OKI ADPCM", 0x0011: "IMA ADPCM", 0x0016: "G.723 ADPCM", 0x0020: "Yamaha ADPCM", 0x0022: "TrueSpeech",
	0x0031: "GSM 6.10", 0x0040: "G.721 ADPCM", 0x0042: "G.723.1", 0x0045: "G.726 ADPCM", 0x0050: "MPEG Layer I or II", 0x0055: "MP3",
	0x0064: "G.726 ADPCM", 0x0083: "G.729", 0x0092: "AC-3 over S/PDIF", 0x00FF: "AAC", 0x0160: "Windows Media Audio 1", 0x0161: "Windows Media Audio 2",
	0x0162: "Windows Media Audio Pro", 0x0163: "Windows Media Audio Lossless", 0x0200: "Creative ADPCM", 0x028F: "ADPCM", 0x0270: "ATRAC3",
	0x1610: "AAC", 0x2000: "AC-3", 0x2001: "DTS", 0x5756: "WavPack", 0x674F: "Vorbis", 0xA106: "AAC", 0xA109: "Speex", 0xF1AC: "FLAC",
}

// unsupportedTag refuses samples of a kind that is not decoded.
func unsupportedTag(tag uint16) error {
	name, ok := wavTags[tag]
	if !ok {
		return unsupported("The WAV file's samples are coded in an unknown way, tag 0x%04X.", tag)
	}
	return unsupported("The WAV file's samples are %s, which is not supported yet.", name)
}
