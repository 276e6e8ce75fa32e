package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/flac"
)

// FLAC: native FLAC streams (RFC 9639). The frames are read by probe/flac.
//
// The rules, where files contradict themselves:
//
//   - The samples in the frames count, which takes reading the whole file, though not decoding it. A total in STREAMINFO that the file's bytes
//     could not hold even as silence is damage at once; another that disagrees is damage after the count (about.duration).
//   - A frame that starts and does not end well (cut, checksum, reserved values), or differs from STREAMINFO in rate, channels or bits, is
//     damage, wherever it is: nothing is concealed or dropped in the middle of a recording.
//   - What follows the last frame is ignored if it holds no frame: tags of other formats stand there. If a frame follows, the bytes
//     before it are damage.
//   - Metadata other than STREAMINFO is skipped unread. It must lie within the file.

func sniffFLAC(head []byte) bool { return len(head) >= 4 && string(head[:4]) == "fLaC" }

// maxFLACBlocks bounds the walk through a file of empty metadata blocks.
const maxFLACBlocks = 1000

// The fewest bytes of a frame (header 6, one constant subframe of 4 bits 2, checksum 2) and the most samples.
const (
	minFLACFrameBytes  = 10
	maxFLACFrameFrames = 65536
)

type flacFile struct {
	*source
	info     flac.StreamInfo
	framesAt int64
	decoder  *flac.Decoder
	meta     about
	ready    int // frames of the decoder's block that read has not given yet, its last ones
	block    int // frames in that block
}

func openFLAC(_ context.Context, s *source) (track, error) {
	f := &flacFile{source: s}
	if err := f.metadata(); err != nil {
		return nil, err
	}
	if err := checkLimits(int64(f.info.Rate), int64(f.info.Channels)); err != nil {
		return nil, err
	}
	f.meta = about{container: "flac", codec: "flac", rate: f.info.Rate, channels: f.info.Channels, claimed: unknown, held: unknown}
	if f.info.Bits > 16 {
		f.meta.bits = f.info.Bits
	}
	rest := s.size - f.framesAt
	if f.info.Samples > 0 {
		f.meta.claimed = f.info.Samples
		if most := rest / minFLACFrameBytes * maxFLACFrameFrames; f.info.Samples > most {
			return nil, broken("The header claims %.3f s of audio, more than %d bytes can hold.",
				durationOf(f.info.Samples, f.info.Rate).Seconds(), rest)
		}
	}
	return f, nil
}

// metadata reads STREAMINFO and finds the first frame.
func (f *flacFile) metadata() error {
	at := int64(4)
	for n := range maxFLACBlocks {
		var h [4]byte
		if f.size-at < int64(len(h)) {
			return broken("The FLAC file ends within its metadata.")
		}
		if err := f.bytes(h[:], at); err != nil {
			return err
		}
		kind, length := h[0]&0x7F, int64(h[1])<<16|int64(h[2])<<8|int64(h[3])
		at += int64(len(h))
		if length > f.size-at {
			return broken("A metadata block of the FLAC file claims %d bytes, more than the file has.", length)
		}
		switch {
		case n == 0 && (kind != 0 || length != flac.StreamInfoBytes):
			return broken("The FLAC file does not start with STREAMINFO.")
		case n > 0 && kind == 0:
			return broken("The FLAC file has two STREAMINFO blocks.")
		case kind == 127:
			return broken("The FLAC file has a metadata block of a forbidden type.")
		case n == 0:
			var b [flac.StreamInfoBytes]byte
			if err := f.bytes(b[:], at); err != nil {
				return err
			}
			var err error
			if f.info, err = flac.ParseStreamInfo(b); err != nil {
				return damagedFLAC(err, at)
			}
		}
		at += length
		if h[0]&0x80 != 0 {
			f.framesAt = at
			return nil
		}
	}
	return broken("The FLAC file has more than %d metadata blocks.", maxFLACBlocks)
}

// frames starts at the first frame.
func (f *flacFile) frames() *flac.Decoder {
	return flac.NewDecoder(f.section(f.framesAt, f.size-f.framesAt), f.info)
}

func (f *flacFile) about() about { return f.meta }

func (f *flacFile) count(ctx context.Context, most int64) (int64, error) {
	total, decoder := int64(0), f.frames()
	for total <= most {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := decoder.Skip()
		if err != nil {
			return total, f.ended(ctx, decoder.Offset(), err)
		}
		total += int64(n)
	}
	return total, nil
}

func (f *flacFile) close() {}

func (f *flacFile) read(ctx context.Context, dst []float32) (n int, err error) {
	if f.decoder == nil {
		f.decoder = f.frames()
	}
	if f.ready == 0 {
		if f.block, err = f.decoder.Next(); err != nil {
			if err = f.ended(ctx, f.decoder.Offset(), err); err == nil {
				err = io.EOF
			}
			return 0, err
		}
		f.ready = f.block
	}
	n = min(f.ready, len(dst)/f.info.Channels)
	interleaveFLAC(dst[:n*f.info.Channels], f.decoder, f.info, f.block-f.ready)
	f.ready -= n
	return n, nil
}

// interleaveFLAC fills dst with the samples of the decoder's block, from a frame on.
func interleaveFLAC(dst []float32, d *flac.Decoder, info flac.StreamInfo, from int) {
	scale := math.Ldexp(1, 1-info.Bits)
	for c := range info.Channels {
		samples := d.Samples(c)[from:]
		for i, at := 0, c; at < len(dst); i, at = i+1, at+info.Channels {
			dst[at] = float32(float64(samples[i]) * scale)
		}
	}
}

// ended says what a decoder's error means after so many bytes of whole frames: nil is the end of a whole file.
func (f *flacFile) ended(ctx context.Context, after int64, err error) error {
	at := f.framesAt + after
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, flac.ErrNoFrame):
		next, err := f.findFrame(ctx, at)
		if err == nil && next >= 0 {
			err = broken("The FLAC file is damaged between bytes %d and %d.", at, next)
		}
		return err
	}
	return damagedFLAC(err, at)
}

// damagedFLAC says what an error of package flac means for the file; at is where.
func damagedFLAC(err error, at int64) error {
	switch {
	case errors.Is(err, flac.ErrDamaged):
		return aviary.WrapError(aviary.CodeAudioBroken, "", err, "The FLAC file is damaged at byte %d.", at)
	case errors.Is(err, flac.ErrMismatch):
		return aviary.WrapError(aviary.CodeAudioBroken, "", err,
			"The FLAC frame at byte %d has another sample rate, number of channels or width than the file's header says.", at)
	}
	return err
}

// findFrame looks for a frame header of this stream from at on, and returns where it is, or a negative number. 32 bits of a header are
// given or checked, so that other bytes look like one once in some gigabytes.
func (f *flacFile) findFrame(ctx context.Context, at int64) (int64, error) {
	var buf [32 << 10]byte
	for at < f.size {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		b := buf[:min(int64(len(buf)), f.size-at)]
		if err := f.bytes(b, at); err != nil {
			return 0, err
		}
		last := len(b) - flac.MaxHeaderBytes // where a header may be cut off by the block
		if at+int64(len(b)) == f.size {
			last = len(b)
		}
		for i := 0; i < last; i++ {
			skip := bytes.IndexByte(b[i:last], 0xFF)
			if skip < 0 {
				break
			}
			i += skip
			h, _, ok := flac.ParseHeader(b[i:min(i+flac.MaxHeaderBytes, len(b))], f.info)
			if ok && h.Rate == f.info.Rate && h.Channels == f.info.Channels && h.Bits == f.info.Bits {
				return at + int64(i), nil
			}
		}
		at += int64(last)
	}
	return -1, nil
}

var _ track = (*flacFile)(nil)
