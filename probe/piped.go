package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// Formats that ffmpeg reads whole, through a pipe, with the demuxer that the first bytes call for and no other. Nobody counts for them but
// the decoder: what comes out is how long they are. Where a header claims a length that is cheap to find, it has to be borne out as everywhere.

// pipedFormat is one of them.
type pipedFormat struct {
	container, title string
	demuxer          string // ffmpeg's
	// claim looks at the header: how long the file says it is, 0 if it does not say, or what is wrong with it. nil: there is no such thing.
	claim func(*source) (time.Duration, error)
	loose time.Duration // what the claim may be off by in a whole file, besides slack
}

var (
	pipedASF  = pipedFormat{"asf", "Windows Media", "asf", claimOfASF, 200 * time.Millisecond} // the codec's padding
	pipedWV   = pipedFormat{"wv", "WavPack", "wv", claimOfWavPack, 0}
	pipedEAC3 = pipedFormat{"eac3", "Enhanced AC-3", "eac3", nil, 0}
	pipedTS   = pipedFormat{"mpegts", "MPEG-TS", "mpegts", nil, 0}
	pipedAVI  = pipedFormat{"avi", "AVI", "avi", checkAVI, 0}
	pipedAMR  = pipedFormat{"amr", "AMR", "amr", claimOfAMR, 100 * time.Millisecond} // a clean cut of ffmpeg's
	pipedFLV  = pipedFormat{"flv", "FLV", "flv", nil, 0}
)

// pipedTrack is the audio of such a file.
type pipedTrack struct {
	source *source
	format pipedFormat
	meta   about
	ready  *pipedRun // decodes, and was not read yet
	run    *pipedRun // that read reads
}

// open learns from the decoder what it will give.
func (f pipedFormat) open(ctx context.Context, s *source) (track, error) {
	if s.ffmpeg == nil {
		return nil, needsFFmpeg(f.title)
	}
	t := &pipedTrack{source: s, format: f}
	claim := time.Duration(0)
	if f.claim != nil {
		var err error
		if claim, err = f.claim(s); err != nil {
			return nil, err
		}
	}
	if s.peeking {
		return nil, broken("Only decoding the %s file would tell more.", f.title)
	}
	run, err := f.start(ctx, s)
	if err != nil {
		return nil, err
	}
	t.meta = about{container: f.container, codec: run.codec(f.container), rate: run.rate, channels: run.channels, claimed: unknown, held: unknown, decodesToCount: true}
	if claim > 0 {
		t.meta.claimed = framesWithin(claim, run.rate)
	}
	if f.loose > 0 {
		t.meta.loose = framesWithin(f.loose, run.rate)
	}
	t.ready = run
	return t, nil
}

func (t *pipedTrack) about() about { return t.meta }

// begin is a run at its start.
func (t *pipedTrack) begin(ctx context.Context) (*pipedRun, error) {
	if run := t.ready; run != nil {
		t.ready = nil
		return run, nil
	}
	run, err := t.format.start(ctx, t.source)
	if err == nil && (run.rate != t.meta.rate || run.channels != t.meta.channels) {
		run.close()
		err = errors.New("ffmpeg decodes a file to another rate or number of channels than before")
	}
	return run, err
}

func (t *pipedTrack) count(ctx context.Context, most int64) (int64, error) {
	run, err := t.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer run.close()
	total, block := int64(0), make([]float32, blockFrames*run.channels)
	for total <= most {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := run.read(block)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		total += int64(n)
	}
	return total, nil
}

func (t *pipedTrack) read(ctx context.Context, dst []float32) (int, error) {
	if t.run == nil {
		run, err := t.begin(ctx)
		if err != nil {
			return 0, err
		}
		t.run = run
	}
	return t.run.read(dst)
}

func (t *pipedTrack) close() {
	for _, run := range []*pipedRun{t.ready, t.run} {
		if run != nil {
			run.close()
		}
	}
}

// pipedRun is a decoding of the file, from its start.
type pipedRun struct {
	process        *ffmpeg.Process
	in             *bufio.Reader
	title          string
	rate, channels int
}

// start starts a run and reads the header of its output: an AU file of 32-bit floats, which says no length.
func (f pipedFormat) start(ctx context.Context, s *source) (*pipedRun, error) {
	process, err := s.ffmpeg.Start(ctx, ffmpeg.Task{
		Demuxer: f.demuxer, Decoders: ffmpegDecoders, Tell: true,
		Output: []string{"-f", "au", "-c:a", "pcm_f32be"},
		Feed: func(ctx context.Context, w io.Writer) error {
			_, err := io.CopyBuffer(struct{ io.Writer }{w}, &cancelableReader{ctx, s.section(0, s.size)}, make([]byte, ffmpegBufferBytes))
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	run := &pipedRun{process: process, in: bufio.NewReaderSize(process, ffmpegBufferBytes), title: f.title}
	if err := run.header(); err != nil {
		run.close()
		return nil, err
	}
	return run, nil
}

// cancelableReader is a reader that ends with its context.
type cancelableReader struct {
	ctx context.Context //nolint:containedctx // it lives as long as the call that the context is of
	r   io.Reader
}

func (c *cancelableReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// header reads what the output is.
func (r *pipedRun) header() error {
	const fixed, float32s, most = 24, 6, 64 << 10
	b, err := r.in.Peek(fixed)
	if errors.Is(err, io.EOF) && r.in.Buffered() == 0 {
		return broken("The %s file holds no audio that can be decoded.", r.title)
	}
	if errors.Is(err, ffmpeg.ErrStalled) {
		return silentFFmpeg(err)
	}
	if err != nil {
		return ffmpegError(err, r.title)
	}
	size, encoding := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[12:])
	if string(b[:4]) != ".snd" || encoding != float32s || size < fixed || size > most {
		return fmt.Errorf("ffmpeg does not give the AU file that it was asked for, but %x", b)
	}
	rate, channels := int64(binary.BigEndian.Uint32(b[16:])), int64(binary.BigEndian.Uint32(b[20:]))
	if err := checkLimits(rate, channels); err != nil {
		return err
	}
	r.rate, r.channels = int(rate), int(channels)
	if _, err := r.in.Discard(int(size)); err != nil {
		return ffmpegError(err, r.title)
	}
	return nil
}

// read gives what was decoded, and the truth about it at its end.
func (r *pipedRun) read(dst []float32) (int, error) {
	n, err := readFloats(r.in, dst, r.channels, binary.BigEndian)
	if err != nil && !errors.Is(err, io.EOF) {
		err = ffmpegError(err, r.title)
	}
	return n, err
}

func (r *pipedRun) close() { r.process.Close() }

// mappedCodec is the line in which ffmpeg 4 to 7 says what it decodes: "  Stream #0:1 -> #0:0 (wmav2 (native) -> pcm_f32be (native))". It comes
// before the output. Lines of a file's metadata are indented further.
var mappedCodec = regexp.MustCompile(`(?m)^  Stream #0:\d+ -> #0:0 \(([a-z0-9_]{1,32}) \(`)

// codec is what is decoded by ffmpeg's own account, or else the container.
func (r *pipedRun) codec(container string) string {
	const patience = 2 * time.Second // it has been written, and waits in a pipe
	name := r.process.Await(func(said []byte) []byte {
		if found := mappedCodec.FindSubmatch(said); found != nil {
			return found[1]
		}
		return nil
	}, patience)
	if name == nil {
		return container
	}
	return string(name)
}

func sniffWavPack(head []byte) bool {
	// Versions of its stream, and a block of at least its own header.
	return len(head) >= 32 && string(head[:4]) == "wvpk" && head[9] == 4 && head[8] >= 2 && head[8] <= 0x10 && binary.LittleEndian.Uint32(head[4:]) >= 24
}

// claimOfWavPack reads the header of the first block: the total is in samples, of a rate that a table gives for most files.
func claimOfWavPack(s *source) (time.Duration, error) {
	rates := [15]int{6000, 8000, 9600, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000, 192000}
	const dsd = 1 << 31
	total, flags := binary.LittleEndian.Uint32(s.head[12:]), binary.LittleEndian.Uint32(s.head[24:])
	index := int(flags >> 23 & 15)
	if total == 1<<32-1 || s.head[11] != 0 || index >= len(rates) || flags&dsd != 0 { // unknown, beyond 32 bits, elsewhere, or in bits
		return 0, nil
	}
	return durationOf(int64(total), rates[index]), nil
}

const asfMagic = "\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa\x00\x62\xce\x6c"

func sniffASF(head []byte) bool { return len(head) >= 30 && string(head[:16]) == asfMagic }

// claimOfASF reads the header's objects (Advanced Systems Format specification 1.2, sections 3.1 to 3.3). The duration is that of the longest stream: it
// is a claim where the only stream is audio.
func claimOfASF(s *source) (time.Duration, error) {
	const (
		fileProperties   = "\xa1\xdc\xab\x8c\x47\xa9\xcf\x11\x8e\xe4\x00\xc0\x0c\x20\x53\x65"
		streamProperties = "\x91\x07\xdc\xb7\xb7\xa9\xcf\x11\x8e\xe6\x00\xc0\x0c\x20\x53\x65"
		audioMedia       = "\x40\x9e\x69\xf8\x4d\x5b\xcf\x11\xa8\xfd\x00\x80\x5f\x5c\x44\x2b"
		mostObjects      = 100
		broadcast        = 1
		head             = 24
	)
	claim, streams := time.Duration(0), 0
	end := min(int64(min(binary.LittleEndian.Uint64(s.head[16:]), 1<<62)), s.size)
	at := int64(30)
	for range mostObjects {
		var b [104]byte
		if end-at < head {
			break
		}
		if err := s.bytes(b[:min(int64(len(b)), s.size-at)], at); err != nil {
			return 0, err
		}
		size := binary.LittleEndian.Uint64(b[16:])
		if size < head || size > uint64(end-at) {
			return 0, broken("The header of the Windows Media file is damaged or cut off at byte %d.", at)
		}
		switch id := string(b[:16]); {
		case id == streamProperties:
			if streams++; string(b[24:40]) != audioMedia {
				streams = 2
			}
		case id == fileProperties && b[88]&broadcast == 0:
			if claimed := binary.LittleEndian.Uint64(b[40:]); claimed > uint64(s.size) {
				return 0, broken("The Windows Media file claims %d bytes, but has %d: it is cut off.", claimed, s.size)
			}
			playing, preroll := binary.LittleEndian.Uint64(b[64:]), binary.LittleEndian.Uint64(b[80:])
			d, ok := aviary.Seconds(float64(playing)/1e7 - float64(preroll)/1e3)
			if ok {
				claim = d
			}
		}
		at += int64(size)
	}
	if streams != 1 {
		return 0, nil
	}
	return claim, nil
}

func sniffAVI(head []byte) bool {
	return len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "AVI "
}

// checkAVI refuses a file that was cut off. Recordings that were not finished have a size of 0 or of all ones.
func checkAVI(s *source) (time.Duration, error) {
	size := binary.LittleEndian.Uint32(s.head[4:])
	if size != 1<<32-1 && int64(size) > s.size-8 {
		return 0, broken("The AVI file claims %d bytes, but has %d: it is cut off.", int64(size)+8, s.size)
	}
	return 0, nil
}

func sniffAMR(head []byte) bool {
	for _, magic := range []string{"#!AMR\n", "#!AMR-WB\n"} {
		if len(head) >= len(magic) && string(head[:len(magic)]) == magic {
			return true
		}
	}
	return false
}

const amrFramesPerSecond = 50

// The bytes of AMR's frames by type, behind the byte that tells it; 0 is no type (RFC 4867, section 5.3; 3GPP TS 26.101 and 26.201).
var (
	amrNarrow = [16]int{12, 13, 15, 17, 19, 20, 26, 31, 5, 15: -1}
	amrWide   = [16]int{17, 23, 32, 36, 40, 46, 50, 58, 60, 5, 14: -1, 15: -1}
)

// claimOfAMR counts the frames: ffmpeg drops those that it cannot decode.
func claimOfAMR(s *source) (time.Duration, error) {
	sizes, at := &amrNarrow, int64(len("#!AMR\n"))
	if string(s.head[5:6]) == "-" {
		sizes, at = &amrWide, int64(len("#!AMR-WB\n"))
	}
	in := bufio.NewReaderSize(s.section(at, s.size-at), ffmpegBufferBytes)
	for frames := int64(0); ; frames++ {
		toc, err := in.ReadByte()
		if errors.Is(err, io.EOF) {
			return durationOf(frames, amrFramesPerSecond), nil
		}
		if err != nil {
			return 0, err
		}
		n := sizes[toc>>3&15]
		if n == 0 {
			return 0, broken("The AMR file is damaged: its frame %d is of type %d, which does not exist.", frames+1, toc>>3&15)
		}
		if _, err := in.Discard(max(n, 0)); errors.Is(err, io.EOF) {
			return 0, broken("The AMR file is cut off in its frame %d.", frames+1)
		} else if err != nil {
			return 0, err
		}
	}
}

// sniffFLV knows version 1, whose header has 9 bytes and flags for audio and video.
func sniffFLV(head []byte) bool {
	return len(head) >= 9 && string(head[:4]) == "FLV\x01" && head[4]&^5 == 0 && string(head[5:9]) == "\x00\x00\x00\x09"
}

// sniffTS looks for the sync byte at the distance of packets (ISO 13818-1, section 2.4.3.2), which have 188 bytes, or 192 with a time before them.
func sniffTS(head []byte) bool {
	for _, layout := range []struct{ at, packet int }{{0, 188}, {4, 192}} {
		n := 0
		for at := layout.at; at < len(head) && head[at] == 'G'; at += layout.packet {
			n++
		}
		if n > 2 && layout.at+n*layout.packet >= len(head) {
			return true
		}
	}
	return false
}
