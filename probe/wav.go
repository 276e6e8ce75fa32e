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
//   - The frame size (block align) must be channels x bytes per sample, but for 24 bits in 32 (place24). The byte rate and the RIFF size are not
//     used, and the fact chunk only where samples are coded: see wavcoded.go.
//   - Samples are what the fmt chunk says. That they look like another format's frames is no matter.

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
	fact   uint32 // sample frames by the fact chunk; 0 if it does not say
	meta   about

	dataAt, dataBytes int64 // what is decoded
	hidden            int64 // bytes behind it that the header conceals
	data              *wavData
}

func openWAV(ctx context.Context, s *source) (track, error) {
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
	return w.track(ctx)
}

// track makes a track of what place was told.
func (w *wavFile) track(ctx context.Context) (track, error) {
	switch {
	case w.format.coding != nil:
		return w.coded()
	case w.format.tag == tagMP3:
		return w.mp3(ctx)
	}
	return w.plain()
}

// plain makes a track of samples that are not coded.
func (w *wavFile) plain() (track, error) {
	f := w.format
	if f.padded {
		if err := w.place24(); err != nil {
			return nil, err
		}
	}
	t := newPCMTrack(w.source, f.pcm, w.meta, w.dataAt, w.dataBytes)
	t.meta.held = f.frames(w.dataBytes + w.hidden)
	if f.tag == tagPCM && f.pcm.bytes <= 4 && !f.padded {
		w.meta, w.dataBytes = t.meta, t.samples.left
		return w, nil
	}
	return t, nil
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
		case "fact":
			if err := w.parseFact(c); err != nil {
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

// parseFact reads the number of sample frames.
func (w *wavFile) parseFact(c wavChunk) error {
	var b [4]byte
	if int64(c.size) < int64(len(b)) {
		return nil
	}
	if err := w.bytes(b[:], c.body); err != nil {
		return err
	}
	w.fact = w.order.Uint32(b[:])
	return nil
}

// setData decides which bytes are audio, how many frames they are, and how many the header claims.
func (w *wavFile) setData(c wavChunk) error {
	if w.format == nil {
		return broken("The WAV file has no fmt chunk before its data.")
	}
	there := w.size - c.body
	claim, err := w.claimedBytes(c, there)
	if err != nil {
		return err
	}
	hidden := int64(0)
	if claim != unknown {
		if hidden, err = w.concealed(c.body+min(claim, there), claim); err != nil {
			return err
		}
	}
	w.place(c.body, claim, hidden)
	return nil
}

// place says where the data is: from at on, as many bytes as the header claims, or up to the end of the file where that is unknown; and how many bytes
// the header conceals.
func (w *wavFile) place(at, claim, hidden int64) {
	f := w.format
	w.meta.rate, w.meta.channels, w.meta.claimed = f.rate, f.channels, unknown
	w.dataAt, w.dataBytes = at, w.size-at
	if claim != unknown {
		w.meta.claimed = f.frames(claim)
		w.dataBytes = min(claim, w.dataBytes)
	}
	if durationOf(f.frames(hidden), f.rate) > slack { // less is junk
		w.hidden = hidden
	}
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
		w.data = newWAVData(w.source, w.dataAt, w.dataBytes, w.format)
	}
	return w.data.read(dst)
}

var _ track = (*wavFile)(nil)
