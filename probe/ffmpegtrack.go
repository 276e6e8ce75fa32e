package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
	"github.com/aviary-asr/aviary/probe/matroska"
)

// ffmpegDecoders are the decoders that ffmpeg may use, for audio only: it opens those for a file's other tracks before it is told what to decode.
var ffmpegDecoders = []string{
	"aac", "aac_latm", "ac3", "adpcm_g722", "adpcm_g726", "adpcm_g726le", "g722", "g726", "g726le", "adpcm_ima_qt", "adpcm_ima_wav", "adpcm_ms",
	"adpcm_swf", "adpcm_yamaha", "alac", "amrnb", "amrwb", "libopencore_amrnb", "libopencore_amrwb", "dca", "eac3", "flac", "gsm", "gsm_ms", "libgsm",
	"libgsm_ms", "mp1", "mp1float", "mp2", "mp2float", "mp3", "mp3float", "nellymoser", "opus", "libopus", "pcm_alaw", "pcm_bluray", "pcm_dvd",
	"pcm_f32be", "pcm_f32le", "pcm_f64be", "pcm_f64le", "pcm_mulaw", "pcm_s16be", "pcm_s16le", "pcm_s24be", "pcm_s24le", "pcm_s32be", "pcm_s32le",
	"pcm_s8", "pcm_u8", "speex", "libspeex", "truehd", "vorbis", "libvorbis", "wavpack", "wmalossless", "wmapro", "wmav1", "wmav2", "wmavoice",
}

// What ffmpeg may miss or add, of the frames that were counted. It conceals or drops packets that are damaged, as players do.
const (
	ffmpegSlackParts = 100 // one part of so many
	ffmpegSlackParth = 4   // or so many parts of a second, whichever is more
)

// ffmpegSlack is how many frames ffmpeg's result may differ by.
func ffmpegSlack(counted int64, rate int) int64 {
	return max(counted/ffmpegSlackParts, int64(rate/ffmpegSlackParth))
}

// ffmpegSamples are a stream's samples as ffmpeg decodes them.
type ffmpegSamples struct {
	process *ffmpeg.Process
	stream  stream
	in      *bufio.Reader
	fed     atomic.Int64 // frames of the packets that were handed over
	given   int64        // frames that came back
}

// openFFmpeg lets ffmpeg decode a stream. It never sees the upload: it is fed a Matroska stream of the same packets that are counted, without
// delay or padding, and told to skip nothing, so that it gives as many frames as they have. Where it does not, by more than a hundredth and a
// quarter of a second, the file is broken.
func openFFmpeg(ctx context.Context, cmd *ffmpeg.Command, st stream) (sampleReader, error) {
	s := &ffmpegSamples{stream: st}
	var err error
	s.process, err = cmd.Start(ctx, ffmpeg.Task{
		Demuxer: "matroska", Decoders: ffmpegDecoders,
		Input:  []string{"-flags2", "+skip_manual"},
		Output: []string{"-f", "f32le", "-c:a", "pcm_f32le", "-ar", strconv.Itoa(st.rate), "-ac", strconv.Itoa(st.channels)},
		Feed:   s.feed,
	})
	if err != nil {
		return nil, err
	}
	s.in = bufio.NewReaderSize(s.process, ffmpegBufferBytes)
	return s, nil
}

// ffmpegBufferBytes is what waits on our side of a pipe; the kernel holds as much.
const ffmpegBufferBytes = 64 << 10

// feed writes the packets.
func (s *ffmpegSamples) feed(ctx context.Context, w io.Writer) error {
	buffer := bufio.NewWriterSize(w, ffmpegBufferBytes)
	file, err := matroska.NewWriter(buffer, matroska.Track{
		CodecID: s.stream.codec.matroska, Private: s.stream.setup, SampleRate: float64(s.stream.rate), Channels: s.stream.channels,
	})
	for packets := s.stream.packets(false); err == nil; {
		var p packet
		if p, err = packets.next(ctx); errors.Is(err, io.EOF) {
			return buffer.Flush()
		} else if err == nil {
			s.fed.Add(p.frames)
			err = file.WritePacket(p.data, p.frames)
		}
	}
	return err
}

// read implements sampleReader.
func (s *ffmpegSamples) read(_ context.Context, dst []float32) (int, error) {
	n, err := readFloats(s.in, dst, s.stream.channels, binary.LittleEndian)
	s.given += int64(n)
	counted := s.fed.Load()
	over := s.given - counted
	switch {
	case errors.Is(err, io.EOF) && -over > ffmpegSlack(counted, s.stream.rate):
		return 0, s.deviates(counted)
	case s.given == 0 && errors.Is(err, ffmpeg.ErrStalled):
		return 0, silentFFmpeg(err)
	case err != nil && !errors.Is(err, io.EOF):
		return 0, ffmpegError(err, s.stream.codec.title)
	case over > ffmpegSlack(counted, s.stream.rate):
		return 0, s.deviates(counted)
	}
	return n, err
}

func (s *ffmpegSamples) deviates(counted int64) error {
	rate := s.stream.rate
	return aviary.WrapError(aviary.CodeAudioBroken, "", fmt.Errorf("ffmpeg: %s", s.process.Said()),
		"The packets of the file hold %.3f s of audio, but %.3f s of it can be decoded.", durationOf(counted, rate).Seconds(), durationOf(s.given, rate).Seconds())
}

func (s *ffmpegSamples) close() { s.process.Close() }

// readFloats reads whole frames: as many as are there, at least one. It returns io.EOF at the end, which must be that of a frame.
func readFloats(in *bufio.Reader, dst []float32, channels int, order binary.ByteOrder) (int, error) {
	frame := 4 * channels
	if _, err := in.Peek(frame); err != nil {
		if errors.Is(err, io.EOF) && in.Buffered() > 0 {
			err = fmt.Errorf("ffmpeg's output ends within a frame: %w", io.ErrUnexpectedEOF)
		}
		return 0, err
	}
	n := min(in.Buffered()/frame, len(dst)/channels)
	b, err := in.Peek(n * frame)
	if err != nil {
		return 0, err
	}
	for i := range n * channels {
		dst[i] = math.Float32frombits(order.Uint32(b[4*i:]))
	}
	_, err = in.Discard(len(b))
	return n, err
}

// silentFFmpeg is about an ffmpeg that gave nothing and did nothing until that ended it: it, and not the file, is likely to be broken, and another try may do better.
func silentFFmpeg(err error) error { return fmt.Errorf("ffmpeg gave nothing at all: %w", err) }

// ffmpegError says what a failure of ffmpeg means. What it said itself is for the log.
func ffmpegError(err error, title string) error {
	wrap := func(code aviary.Code, detail string) *aviary.Error {
		return aviary.WrapError(code, "", err, "%s", fmt.Sprintf(detail, title))
	}
	switch {
	case errors.Is(err, ffmpeg.ErrNoAudio):
		return wrap(aviary.CodeAudioNoStream, "The %s file has no audio.")
	case errors.Is(err, ffmpeg.ErrNoDecoder):
		e := wrap(aviary.CodeMediaTypeUnsupported, "The file holds %s, which the ffmpeg of this server cannot decode.")
		e.Hint = "Send FLAC or WAV: ffmpeg -i INPUT -ac 1 -ar 16000 OUTPUT.flac. The operator can install an ffmpeg with more decoders."
		return e
	case errors.Is(err, ffmpeg.ErrLimit):
		return wrap(aviary.CodeAudioBroken, "The %s audio takes more time or memory to decode than any recording does.")
	case errors.Is(err, ffmpeg.ErrFailed):
		return wrap(aviary.CodeAudioBroken, "The %s audio is damaged and cannot be decoded.")
	}
	return err
}
