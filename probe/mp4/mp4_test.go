package mp4

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// golden is a file of the tests of package probe (tools/probe-golden).
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What the boxes say, against what ffprobe says of them (stream and packet entries).
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, brand, format string
		tracks, audio       int
		fragmented          bool
		timescale           uint32
		duration            int64
		edit                Edit
		samples, bytes      int64 // of all packets
	}{
		{"mp4_aac.m4a", "M4A ", "mp4a", 1, 1, false, 16000, 5024, Edit{0, 1024, 250}, 5, 1809},
		{"mp4_aac_video.mp4", "isom", "mp4a", 2, 1, false, 16000, 5024, Edit{0, 1024, 250}, 5, 1809},
		{"mp4_aac_two.mp4", "isom", "mp4a", 3, 2, false, 16000, 5024, Edit{0, 1024, 250}, 5, 1809},
		{"mp4_aac_frag.mp4", "isom", "mp4a", 1, 1, true, 16000, Unknown, Edit{0, 0, Unknown}, 5, 1809},
		{"mp4_aac_delay.mp4", "isom", "mp4a", 1, 1, true, 16000, Unknown, Edit{0, 1024, Unknown}, 5, 1809},
		{"mp4_alac.m4a", "M4A ", "alac", 1, 1, false, 16000, 4000, Edit{0, 0, 250}, 1, 4668},
		{"mp4_flac_frag.mp4", "iso5", "fLaC", 1, 1, true, 16000, Unknown, Edit{0, 0, Unknown}, 4, 4308},
		{"mp4_opus.mp4", "isom", "Opus", 1, 1, false, 48000, 12312, Edit{0, 312, 250}, 13, 890},
		{"mp4_mp3.mov", "qt  ", ".mp3", 1, 1, false, 16000, 5105, Edit{0, 1105, 250}, 9, 1296},
		{"pcm_s24le.mov", "qt  ", "in24", 1, 1, false, 16000, 400, Edit{0, 0, 25}, 400, 1200},
	} {
		file := golden(t, c.file)
		f, err := Parse(t.Context(), bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		a := f.Audio
		if f.Brand != c.brand || f.Tracks != c.tracks || f.AudioTracks != c.audio || f.Fragmented != c.fragmented || f.MovieTimescale != 1000 ||
			a.Timescale != c.timescale || a.Duration != c.duration || a.Edit != c.edit || a.Entry.Format != c.format {
			t.Errorf("%s: %q, %d and %d tracks, %d and %d ticks/s, %d ticks, %+v, %q; want %+v", c.file, f.Brand, f.Tracks, f.AudioTracks, f.MovieTimescale,
				a.Timescale, a.Duration, a.Edit, a.Entry.Format, c)
		}
		samples, size, err := walk(t, a, file)
		if !errors.Is(err, io.EOF) || samples != c.samples || size != c.bytes {
			t.Errorf("%s: %d samples of %d bytes, %v; want %d of %d", c.file, samples, size, err, c.samples, c.bytes)
		}
	}
}

// walk adds up all runs and holds them to the promises.
func walk(t testing.TB, a *Track, file []byte) (samples, size int64, err error) {
	t.Helper()
	runs := a.Runs(0)
	for n := 0; ; n++ {
		run, err := runs.Next(context.Background())
		if err != nil {
			return samples, size, err
		}
		if run.At < 0 || run.Count < 1 || run.Bytes < 1 || run.Ticks < 0 || run.At+run.Count*run.Bytes > int64(len(file)) {
			t.Fatalf("%+v in a file of %d bytes", run, len(file))
		}
		if n > 2*len(file) {
			t.Fatalf("%d runs in a file of %d bytes", n, len(file))
		}
		samples += run.Count
		size += run.Count * run.Bytes
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v        int64
		num, den uint64
		want     int64
	}{
		{0, 1, 1, 0}, {3, 1, 2, 2}, {5, 1, 3, 2}, {1000, 44100, 1000, 44100}, {math.MaxInt64, 1, 1, math.MaxInt64}, {math.MaxInt64, 48000, 1, math.MaxInt64},
		{math.MaxInt64, math.MaxUint32, math.MaxUint32, math.MaxInt64}, {1 << 62, 1, math.MaxUint32, 1 << 30},
	} {
		if got := Scale(c.v, c.num, c.den); got != c.want {
			t.Errorf("%d x %d / %d is %d, want %d", c.v, c.num, c.den, got, c.want)
		}
	}
}

// Pieces in order are read ahead, others are not, and nothing is read behind the end.
func TestWindow(t *testing.T) {
	t.Parallel()
	file := make([]byte, 200_000)
	for i := range file {
		file[i] = byte(i * 7 / 3)
	}
	r := &counting{r: bytes.NewReader(file)}
	w := NewWindow(r, 150_000, 32<<10)
	for at := int64(0); at+100 <= 150_000; at += 100 {
		if b, err := w.Bytes(at, 100); err != nil || !bytes.Equal(b, file[at:at+100]) {
			t.Fatalf("at %d: %v", at, err)
		}
	}
	if r.reads > 10 || r.bytes > 160_000 {
		t.Errorf("%d reads of %d bytes in order", r.reads, r.bytes)
	}
	*r = counting{r: r.r}
	for at := int64(140_000); at > 0; at -= 10_000 {
		if b, err := w.Bytes(at, 100); err != nil || !bytes.Equal(b, file[at:at+100]) {
			t.Fatalf("at %d: %v", at, err)
		}
	}
	if r.bytes > 14*minForward {
		t.Errorf("%d reads of %d bytes backwards", r.reads, r.bytes)
	}
	if b, err := w.Bytes(1000, 100_000); err != nil || !bytes.Equal(b, file[1000:101_000]) {
		t.Errorf("a piece larger than the window: %v", err)
	}
	for _, c := range []struct {
		at int64
		n  int
	}{{-1, 1}, {150_000, 1}, {149_999, 2}, {math.MaxInt64, 1}, {0, -1}} {
		if _, err := w.Bytes(c.at, c.n); !errors.Is(err, errOutside) {
			t.Errorf("%d bytes at %d: %v", c.n, c.at, err)
		}
	}
}

// counting counts the reads of a reader.
type counting struct {
	r            io.ReaderAt
	reads, bytes int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.r.ReadAt(p, off)
}

func TestDescriptors(t *testing.T) {
	t.Parallel()
	config := "\x04\x11\x40\x15" + strings.Repeat("\x00", 11) + "\x05\x02\x12\x10"
	long := strings.ReplaceAll(strings.ReplaceAll(config, "\x04\x11", "\x04\x80\x80\x80\x14"), "\x05\x02", "\x05\x80\x80\x80\x02")
	for _, c := range []struct {
		name, bytes, setup string
		ok                 bool
	}{
		{"short sizes", "\x03\x16\x00\x01\x00" + config, "\x12\x10", true},
		{"long sizes", "\x03\x80\x80\x80\x1c\x00\x01\x00" + long, "\x12\x10", true},
		{"a dependency, a URL and a clock", "\x03\x80\x80\x80\x20\x00\x01\xE0\x00\x02\x03url\x00\x03" + config, "\x12\x10", true},
		{"another descriptor before", "\x09\x01\x00\x03\x16\x00\x01\x00" + config, "\x12\x10", true},
		{"sizes beyond the end", "\x03\x7F\x00\x01\x00\x04\x7F" + config[2:15] + "\x05\x7F\x12\x10", "\x12\x10", true},
		{"no setup", "\x03\x12\x00\x01\x00" + config[:15], "", true},
		{"cut in the configuration", "\x03\x16\x00\x01\x00" + config[:10], "", false},
		{"a URL beyond the end", "\x03\x05\x00\x01\x40\xFFu", "", false},
		{"nothing", "", "", false},
		{"another descriptor", "\x09\x01\x00", "", false},
	} {
		d, err := ParseDescriptor([]byte(c.bytes))
		if (err == nil) != c.ok || c.ok && (d.ObjectType != 0x40 || string(d.Setup) != c.setup) {
			t.Errorf("%s: %+v, %v", c.name, d, err)
		}
	}
}

// Each file in a fuzz test's form: no panic, errors that say what is wrong, runs that lie within the file, and bounded memory.
func FuzzMP4Boxes(f *testing.F) {
	for _, pattern := range []string{"../testdata/m4a_*", "../testdata/mov_*", "../testdata/3gp_*", "../testdata/golden/mp4_*.m*", "../testdata/golden/pcm_*.mov"} {
		names, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(names) == 0 {
			f.Fatalf("%d files %s, %v", len(names), pattern, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(b) < 20<<10 {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f, err := Parse(context.Background(), bytes.NewReader(file), int64(len(file)))
		checkDamage(t, err)
		if err == nil && f.Audio != nil && f.Audio.Entry != nil {
			_, _, err = walk(t, f.Audio, file)
			checkDamage(t, err)
			_, _ = f.Audio.Entry.Descriptor()
			_, _, _, err = f.Audio.Times(context.Background(), 1024)
			checkDamage(t, err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 500<<10 {
			t.Fatalf("%d bytes allocated for a file of %d", n, len(file))
		}
	})
}

// checkDamage fails the test for an error that is not about the file.
func checkDamage(t *testing.T, err error) {
	t.Helper()
	var damage *Error
	if err != nil && !errors.Is(err, io.EOF) && (!errors.As(err, &damage) || !strings.HasSuffix(damage.Detail, ".")) {
		t.Fatalf("%v is not about the file", err)
	}
}

// A canceled context ends walks.
func TestCancel(t *testing.T) {
	t.Parallel()
	file := golden(t, "mp4_aac_frag.mp4")
	f, err := Parse(t.Context(), bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	runs := f.Audio.Runs(0)
	if _, err := runs.Next(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	if _, err := runs.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Parse(ctx, bytes.NewReader(file), int64(len(file))); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Boxes without end, and lists of them, cost what they take in the file.
func TestManyBoxes(t *testing.T) {
	t.Parallel()
	empty := binary.BigEndian.AppendUint32(nil, 8)
	file := append(golden(t, "mp4_aac_frag.mp4"), bytes.Repeat(append(empty, "free"...), 500_000)...)
	r := &counting{r: bytes.NewReader(file)}
	f, err := Parse(t.Context(), r, int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if samples, _, err := walk(t, f.Audio, file); samples != 5 || !errors.Is(err, io.EOF) || r.bytes > len(file)*11/10 || r.reads > len(file)/(8<<10) {
		t.Errorf("%d samples, %v, %d reads of %d bytes for %d", samples, err, r.reads, r.bytes, len(file))
	}
}
