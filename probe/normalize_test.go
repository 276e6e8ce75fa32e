package probe

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	mewkiz "github.com/mewkiz/flac"

	"github.com/aviary-asr/aviary"
)

// tape is a RecordingWriter in memory.
type tape struct{ b []byte }

func (t *tape) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	return len(p), nil
}

func (t *tape) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || int(at)+len(p) > len(t.b) {
		return 0, errors.New("written beyond the end")
	}
	return copy(t.b[at:], p), nil
}

// normalize gives what a device would hear of a file, as whole samples.
func normalize(t *testing.T, file []byte, n aviary.Normalizing) (aviary.Audio, *mewkiz.Stream, []int32, error) {
	t.Helper()
	var rec tape
	audio, err := New(Config{}).Normalize(t.Context(), bytes.NewReader(file), int64(len(file)), n, &rec)
	if err != nil {
		return audio, nil, nil, err
	}
	stream, samples := readFLAC(t, rec.b)
	if got := time.Duration(len(samples)) * time.Second / aviary.SampleRate; (got - audio.Duration).Abs() > time.Second/aviary.SampleRate {
		t.Errorf("%v were written, %v reported", got, audio.Duration)
	}
	return audio, stream, samples, nil
}

// readFLAC decodes with another decoder than ours, and checks the header.
func readFLAC(t *testing.T, file []byte) (*mewkiz.Stream, []int32) {
	t.Helper()
	stream, err := mewkiz.New(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var samples []int32
	sum := md5.New()
	for {
		frame, err := stream.ParseNext()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, frame.Subframes[0].Samples...)
	}
	for _, s := range samples {
		b := binary.LittleEndian.AppendUint32(nil, uint32(s))
		sum.Write(b[:stream.Info.BitsPerSample/8])
	}
	info := stream.Info
	if info.SampleRate != aviary.SampleRate || info.NChannels != 1 || info.NSamples != uint64(len(samples)) || [16]byte(sum.Sum(nil)) != info.MD5sum {
		t.Errorf("the header says %+v of %d samples with the sum %x", info, len(samples), sum.Sum(nil))
	}
	return stream, samples
}

// A mono recording of 16 bits at 16 kHz stays what it is, to the bit.
func TestNormalizeKeepsWhatIsNormal(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4095, 4096, 4097, 16000} {
		data := tone16(n)
		copy(data, []byte{0xFF, 0x7F})
		audio, stream, samples, err := normalize(t, riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 16000, 16), chunk(le, "data", data)), aviary.Normalizing{})
		if err != nil || stream.Info.BitsPerSample != 16 || len(audio.Warnings) != 0 {
			t.Fatalf("%+v, %v", audio, err)
		}
		for i, s := range samples {
			if want := int32(int16(binary.LittleEndian.Uint16(data[2*i:]))); s != want {
				t.Fatalf("sample %d of %d is %d, want %d", i, n, s, want)
			}
		}
		if len(samples) != n {
			t.Errorf("%d samples, want %d", len(samples), n)
		}
	}
}

// What has more than 16 bits keeps 24: quiet recordings live there.
func TestNormalizeKeepsQuietRecordings(t *testing.T) {
	t.Parallel()
	var ints, floats []byte
	for i := range 1000 {
		v := i%200 - 100 // within 7 bits of 24: nothing of it would be left in 16
		ints = append(ints, byte(v), byte(v>>8), byte(v>>16))
		floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(float32(v)/(1<<23)))
	}
	for name, file := range map[string][]byte{
		"24 bits": riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 16000, 24), chunk(le, "data", ints)),
		"floats":  riff(le, "RIFF", fmtChunk(le, tagFloat, 1, 16000, 32), chunk(le, "data", floats)),
	} {
		_, stream, samples, err := normalize(t, file, aviary.Normalizing{})
		if err != nil || stream.Info.BitsPerSample != 24 || samples[150] != 50 || samples[0] != -100 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNormalizePicksAChannel(t *testing.T) {
	t.Parallel()
	var data []byte
	for range 100 {
		data = append(data, put(le, int16(100), int16(-300), int16(8000))...)
	}
	file := riff(le, "RIFF", fmtChunk(le, tagPCM, 3, 16000, 16), chunk(le, "data", data))
	for channel, want := range map[int]int32{0: 2600, 1: 100, 2: -300, 3: 8000} {
		_, _, samples, err := normalize(t, file, aviary.Normalizing{Channel: channel})
		if err != nil || samples[50] != want {
			t.Errorf("channel %d: %d, %v; want %d", channel, samples[50], err, want)
		}
	}
	if _, _, _, err := normalize(t, file, aviary.Normalizing{Channel: 4}); aviary.CodeOf(err) != aviary.CodeOptionInvalid || !strings.Contains(err.Error(), "has 3") {
		t.Errorf("channel 4: %v", err)
	}
}

// Samples at another scale, hot ones, huge ones and those that are no numbers become audio that a device can hear, and the user is told.
func TestNormalizeCleansFloats(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		name    string
		sample  func(i int) float32
		peak    float64 // of the result, full scale is 1
		warning string
	}{
		{"within full scale", func(i int) float32 { return 0.5 * wave(i) }, 0.5, ""},
		{"exactly full scale", func(i int) float32 { return []float32{1, -1, 0}[i%3] }, 1, ""},
		{"a few hot samples", func(i int) float32 {
			if i == 500 {
				return 1.7
			}
			return 0.25 * wave(i)
		}, 1, ""},
		{"one huge sample", func(i int) float32 {
			if i == 500 {
				return 1e30
			}
			return 0.25 * wave(i)
		}, 1, ""},
		{"at the scale of 16-bit integers", func(i int) float32 { return 20000 * wave(i) }, 20000.0 / 32768, "divided by 32768"},
		{"twice too loud", func(i int) float32 { return 2 * wave(i) }, 1, "divided by 2."},
		{"huge", func(i int) float32 { return 1e30 * wave(i) }, 1, "divided by 65536"},
		{"a few that are no numbers", func(i int) float32 { return []float32{nan, 0.5, inf, 0.5, 0.5, 0.5, 0.5, 0.5}[i%8] }, 0.5, "are not numbers"},
	} {
		var data []byte
		for i := range 8000 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(c.sample(i)))
		}
		file := riff(le, "RIFF", fmtChunk(le, tagFloat, 1, 16000, 32), chunk(le, "data", data))
		audio, _, samples, err := normalize(t, file, aviary.Normalizing{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		peak := math.Max(float64(slices.Max(samples)), -float64(slices.Min(samples))) / (1 << 23)
		if math.Abs(peak-c.peak) > 0.01 {
			t.Errorf("%s: the peak is %.3f, want %.3f", c.name, peak, c.peak)
		}
		if (c.warning == "") != (len(audio.Warnings) == 0) || !strings.Contains(strings.Join(audio.Warnings, " "), c.warning) {
			t.Errorf("%s: warnings %q, want %q", c.name, audio.Warnings, c.warning)
		}
	}
}

func wave(i int) float32 { return float32(math.Sin(float64(i) * 0.1)) }

// The guard is exact, and what is beyond it is refused before anything is written.
func TestNormalizeHoldsTheGuard(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	for _, rate := range []int{8000, 11025, 44100} {
		exact := int64(rate / 5)
		for name, file := range map[string]tiled{
			"WAV": longWAV(rate, exact), "FLAC": flacOf(rate, exact, 0), "WAV+1": longWAV(rate, exact+1), "FLAC+1": flacOf(rate, exact+1, 0),
			"FLAC+1 that claims less": flacOf(rate, exact+1, exact), "FLAC that claims more": flacOf(rate, exact, exact+1),
		} {
			var rec tape
			audio, err := New(Config{}).Normalize(t.Context(), file, file.size, aviary.Normalizing{Limit: limit}, &rec)
			long := strings.Contains(name, "+1") // a frame more by claim alone is a matter of rounding
			switch {
			case !long && (err != nil || audio.Duration != limit && durationOf(exact, rate) != audio.Duration):
				t.Errorf("%s at %d Hz: %v, %v", name, rate, audio.Duration, err)
			case long && (aviary.CodeOf(err) != aviary.CodeAudioTooLong || len(rec.b) != 0):
				t.Errorf("%s at %d Hz: %v, %d bytes written", name, rate, err, len(rec.b))
			}
		}
	}
}

// A track that decodes to another length than it counts is held to the rule.
func TestNormalizeWeighsWhatDecodes(t *testing.T) {
	t.Parallel()
	second := int64(16000)
	for _, c := range []struct {
		counted, decoded, loose int64
		warn, broken            bool
	}{
		{second, second, 0, false, false}, {second, second - 800, 0, false, false}, {second, second + 801, 0, true, false}, {second, second - 801, 0, true, false},
		{second, second + 4001, 0, false, true}, {second, second - 4001, 0, false, true}, {second, second - 4001, 1024, true, false},
		{second, second + 1024, 1024, false, false}, {3600 * second, 3600*second - 36*second, 0, true, false}, {3600 * second, 3600*second - 36*second - 1, 0, false, true},
		{unknown, 5, 0, false, false},
	} {
		warnings, err := about{rate: 16000, loose: c.loose}.deviation(c.counted, c.decoded)
		if (err != nil) != c.broken || (len(warnings) > 0) != c.warn {
			t.Errorf("%+v: %q, %v", c, warnings, err)
		}
	}
}

// Failures of what is written to are not faults of the file.
func TestNormalizeReportsTheWriter(t *testing.T) {
	t.Parallel()
	full := aviary.Errorf(aviary.CodeStorageFull, "blobs.write", "The disk is full.")
	for good := range 3 {
		file := plainWAV(20000)
		_, err := New(Config{}).Normalize(t.Context(), bytes.NewReader(file), int64(len(file)), aviary.Normalizing{}, &fullTape{good: good, err: full})
		if !errors.Is(err, full) || aviary.CodeOf(err) != aviary.CodeStorageFull {
			t.Errorf("after %d writes: %v", good, err)
		}
	}
}

type fullTape struct {
	good int
	err  error
}

func (f *fullTape) Write(p []byte) (int, error) {
	if f.good--; f.good < 0 {
		return 0, f.err
	}
	return len(p), nil
}
func (f *fullTape) WriteAt(p []byte, _ int64) (int, error) { return f.Write(p) }

func TestNormalizeCanBeCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	file := longWAV(16000, 3600*16000)
	reads := 0
	file.onRead = func() {
		if reads++; reads == 5 {
			cancel()
		}
	}
	if _, err := New(Config{}).Normalize(ctx, file, file.size, aviary.Normalizing{}, &tape{}); !errors.Is(err, context.Canceled) || reads > 8 {
		t.Errorf("%v after %d reads", err, reads)
	}
}

// Normalizing an hour costs little memory besides what is written.
func TestNormalizeInBoundedMemory(t *testing.T) {
	file := longWAV(16000, 600*16000)
	n := allocates(func() {
		if _, err := New(Config{}).Normalize(t.Context(), file, file.size, aviary.Normalizing{}, nowhere{}); err != nil {
			t.Error(err)
		}
	})
	if most := uint64(16 << 20); n > most { // go-audio/wav makes garbage for each block
		t.Errorf("%d bytes allocated, want at most %d", n, most)
	}
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error)            { return len(p), nil }
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// What has arrived of an upload is refused only when nothing can save it.
func TestPeek(t *testing.T) {
	t.Parallel()
	wav := longWAV(16000, 3*3600*16000)
	unknownWAV := longWAV(16000, 3*3600*16000)
	copy(unknownWAV.head[len(unknownWAV.head)-4:], "\xff\xff\xff\xff")
	for _, c := range []struct {
		name     string
		file     tiled
		received int64
		want     aviary.Code
	}{
		{"text", tiled{head: bytes.Repeat([]byte("hello "), 20000), size: 120000}, 64 << 10, aviary.CodeMediaTypeUnsupported},
		{"a playlist", tiled{head: []byte("#EXTM3U\n" + strings.Repeat("http://x\n", 9000)), size: 80000}, 64 << 10, aviary.CodeMediaTypeUnsupported},
		{"3 h of WAV by its header", wav, 64 << 10, aviary.CodeAudioTooLong},
		{"3 h of FLAC by its header", flacOf(16000, 3*3600*16000, 3*3600*16000), 200, ""}, // a claim that so few bytes cannot hold
		{"2 h of FLAC by its frames", flacOf(16000, 2*3600*16000, 0), 20_000, aviary.CodeAudioTooLong},
		{"half an hour so far of FLAC", flacOf(16000, 2*3600*16000, 0), 5000, ""},
		{"a WAV of unknown size, an hour so far", unknownWAV, 3600*16000 + 44, ""},
		{"and a second more", unknownWAV, 3601*16000 + 44, aviary.CodeAudioTooLong},
		{"an hour of WAV, cut off", longWAV(16000, 3600*16000), 64 << 10, ""},
		{"a WAV cut off in its header", wav, 20, ""},
	} {
		err := New(Config{MaxDuration: time.Hour}).Peek(t.Context(), c.file, c.received)
		if aviary.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	broken := errors.New("disk on fire")
	if err := New(Config{}).Peek(t.Context(), failingReader{wav, 0, broken}, 100); !errors.Is(err, broken) {
		t.Errorf("a failing reader: %v", err)
	}
}

// FuzzNormalize holds Normalize to Probe: what one refuses the other refuses, and what is accepted can be heard by a device, as long as reported.
func FuzzNormalize(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, file []byte) {
		const limit = 5 * time.Second
		p := New(Config{MaxDuration: limit})
		var rec tape
		audio, err := p.Normalize(context.Background(), bytes.NewReader(file), int64(len(file)), aviary.Normalizing{Limit: limit}, &rec)
		refused(t, err)
		probed, probeErr := p.Probe(context.Background(), bytes.NewReader(file), int64(len(file)))
		if probeErr != nil && err == nil {
			t.Fatalf("probed as %v, but normalized", probeErr)
		}
		if err != nil {
			return
		}
		if audio.Duration > limit || audio.Duration <= 0 || audio.Container != probed.Container || audio.Codec != probed.Codec {
			t.Fatalf("%+v, probed as %+v", audio, probed)
		}
		pcm, err := p.Decode(context.Background(), bytes.NewReader(rec.b), int64(len(rec.b)), limit+time.Second)
		if err != nil || (pcm.Duration()-audio.Duration).Abs() > time.Millisecond {
			t.Fatalf("stored as %v, %v; reported %v", pcm.Duration(), err, audio.Duration)
		}
		checkClean(t, pcm)
	})
}
