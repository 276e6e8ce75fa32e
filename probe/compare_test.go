package probe

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// compared are the formats of BenchmarkAgainstFFmpeg, and how ffmpeg makes them.
var compared = []struct {
	file string
	args []string
}{
	{"pcm.wav", []string{"-c:a", "pcm_s16le"}},
	{"ima.wav", []string{"-c:a", "adpcm_ima_wav"}},
	{"flac.flac", nil},
	{"pcm.aiff", nil},
	{"cbr.mp3", []string{"-c:a", "libmp3lame", "-b:a", "64k"}},
	{"opus.opus", []string{"-c:a", "libopus", "-b:a", "32k"}},
	{"vorbis.ogg", []string{"-c:a", "libvorbis", "-q:a", "3"}},
	{"opus.webm", []string{"-c:a", "libopus", "-b:a", "32k"}},
	{"aac.m4a", []string{"-c:a", "aac", "-b:a", "64k"}},
	{"alac.m4a", []string{"-c:a", "alac"}},
	{"adts.aac", []string{"-c:a", "aac", "-b:a", "64k"}},
	{"media.wma", []string{"-c:a", "wmav2", "-b:a", "48k"}},
}

// BenchmarkAgainstFFmpeg sets probing and normalizing beside ffprobe and ffmpeg, on a recording of 6 minutes in each format, all in one run. read_B/op is
// what probing reads of the file; audio_s/s is how many times real time. ffprobe and ffmpeg pay for the start of a process, which is what
// using them costs.
func BenchmarkAgainstFFmpeg(b *testing.B) {
	command := needFFmpeg(b)
	const length = 365.485875
	dir := b.TempDir()
	for _, c := range compared {
		path := filepath.Join(dir, c.file)
		args := append([]string{"-v", "error", "-y", "-i", "../models/digits/samples/six-speakers-6min-8k.flac", "-ac", "1", "-ar", "16000"}, c.args...)
		if out, err := exec.CommandContext(b.Context(), command.Path, append(args, path)...).CombinedOutput(); err != nil {
			b.Fatalf("%s: %v: %s", c.file, err, out)
		}
		p := New(Config{MaxDuration: time.Hour, FFmpeg: command})
		b.Run(c.file+"/probe/aviary", func(b *testing.B) {
			var read int64
			for b.Loop() {
				onFile(b, path, &read, func(r io.ReaderAt, size int64) error {
					_, err := p.Probe(b.Context(), r, size)
					return err
				})
			}
			b.ReportMetric(float64(read)/float64(b.N), "read_B/op")
		})
		b.Run(c.file+"/probe/ffprobe", func(b *testing.B) {
			for b.Loop() {
				run(b, filepath.Join(filepath.Dir(command.Path), "ffprobe"), "-v", "error", "-show_entries", "format=duration", path)
			}
		})
		b.Run(c.file+"/normalize/aviary", func(b *testing.B) {
			for b.Loop() {
				onFile(b, path, new(int64), func(r io.ReaderAt, size int64) error {
					_, err := p.Normalize(b.Context(), r, size, aviary.Normalizing{Limit: time.Hour}, nowhere{})
					return err
				})
			}
			b.ReportMetric(float64(b.N)*length/b.Elapsed().Seconds(), "audio_s/s")
		})
		b.Run(c.file+"/normalize/ffmpeg", func(b *testing.B) {
			for b.Loop() {
				run(b, command.Path, "-v", "error", "-nostdin", "-i", path, "-threads", "1", "-ac", "1", "-ar", "16000", "-f", "flac", "-y", os.DevNull)
			}
			b.ReportMetric(float64(b.N)*length/b.Elapsed().Seconds(), "audio_s/s")
		})
	}
}

// countingReader counts the bytes that are read.
type countingReader struct {
	io.ReaderAt
	n *int64
}

func (c countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	*c.n += int64(n)
	return n, err
}

func onFile(b *testing.B, path string, read *int64, f func(r io.ReaderAt, size int64) error) {
	b.Helper()
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		b.Fatal(err)
	}
	if err := f(countingReader{file, read}, info.Size()); err != nil {
		b.Fatal(err)
	}
}

func run(b *testing.B, name string, args ...string) {
	b.Helper()
	if out, err := exec.CommandContext(b.Context(), name, args...).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}
