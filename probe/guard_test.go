package probe

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

var guardRates = []int{4000, 7350, 8000, 11025, 16000, 22050, 44100, 44101, 48000, 96000, 192000, 383999, 384000}

// One frame more than the limit is too long, at any rate; the limit itself is not. 3600.001 s is a few frames more.
func TestGuardIsExact(t *testing.T) {
	t.Parallel()
	const limit = time.Hour
	for _, rate := range guardRates {
		exact := int64(3600 * rate)
		for _, c := range []struct {
			frames int64
			long   bool
		}{{exact - 1, false}, {exact, false}, {exact + 1, true}, {exact + int64(rate+999)/1000, true}} {
			p := New(Config{MaxDuration: limit})
			for name, file := range map[string]tiled{"WAV": longWAV(rate, c.frames), "FLAC": flacOf(rate, c.frames, c.frames), "FLAC without a total": flacOf(rate, c.frames, 0)} {
				audio, err := p.Probe(t.Context(), file, file.size)
				if err != nil {
					t.Errorf("%s, %d frames at %d Hz: %v", name, c.frames, rate, err)
					continue
				}
				if long := aviary.CodeOf(aviary.CheckDuration("test", audio.Duration, limit)) == aviary.CodeAudioTooLong; long != c.long {
					t.Errorf("%s, %d frames at %d Hz: %v, too long: %v, want %v", name, c.frames, rate, audio.Duration, long, c.long)
				}
			}
		}
	}
}

// 6 GB need the 64-bit sizes of RF64.
func TestGuardBeyond4GB(t *testing.T) {
	t.Parallel()
	const rate, frame = 96000, 6 * 3
	for _, extra := range []int64{0, 1} {
		data := (3600*rate + extra) * frame
		head := riff(le, "RF64", chunk(le, "ds64", put(le, uint64(data+72), uint64(data), uint64(0), uint32(0))),
			fmtChunk(le, tagPCM, 6, rate, 24), put(le, "data", uint32(math.MaxUint32)))
		file := tiled{head: head, tile: []byte{0, 0, 0}, size: int64(len(head)) + data}
		audio, err := New(Config{MaxDuration: time.Hour}).Probe(t.Context(), file, file.size)
		if want := durationOf(3600*rate+extra, rate); err != nil || audio.Duration != want || audio.Container != "rf64" || (audio.Duration > time.Hour) != (extra > 0) {
			t.Errorf("%+v, %v; want %v", audio, err, want)
		}
	}
}

// flacOf is a FLAC of exactly so many frames, which claims what it is told to.
func flacOf(rate int, frames, claim int64) tiled {
	const block = 65000
	return longFLAC(rate, int(frames%block), block, frames/block, claim)
}

// Decode holds the same line, when the header says how long the file is and when only counting tells.
func TestDecodeStopsAtTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	for _, rate := range []int{4000, 8000, 11025, 16000, 44100, 384000} {
		exact := int64(rate / 5)
		for _, c := range []struct {
			frames int64
			long   bool
		}{{exact, false}, {exact + 1, true}, {2 * exact, true}} {
			unknownWAV := longWAV(rate, c.frames)
			copy(unknownWAV.head[len(unknownWAV.head)-4:], "\xff\xff\xff\xff")
			for name, file := range map[string]tiled{
				"WAV": longWAV(rate, c.frames), "WAV of unknown size": unknownWAV,
				"FLAC": flacOf(rate, c.frames, c.frames), "FLAC without a total": flacOf(rate, c.frames, 0),
				"FLAC that claims less": flacOf(rate, c.frames, c.frames-1),
			} {
				pcm, err := New(Config{}).Decode(t.Context(), file, file.size, limit)
				if c.long {
					var e *aviary.Error
					if !errors.As(err, &e) || e.Code != aviary.CodeAudioTooLong || e.Limit != 0.2 || e.Actual <= 0.2 || e.Unit != "seconds" || pcm != nil {
						t.Errorf("%s, %d frames at %d Hz: %d samples, %v", name, c.frames, rate, len(pcm), err)
					}
				} else if err != nil || len(pcm) != 3200 {
					t.Errorf("%s, %d frames at %d Hz: %d samples, %v", name, c.frames, rate, len(pcm), err)
				}
			}
		}
	}
}

// A bomb stops Decode soon behind the limit, whatever it claims, and costs memory for what was decoded, not for what was claimed.
func TestDecodeOfBombs(t *testing.T) {
	for name, file := range map[string]tiled{
		"24 h that claim nothing":    flacOf(8000, 24*3600*8000, 0),
		"24 h that claim 1 s":        flacOf(8000, 24*3600*8000, 8000),
		"1 s that claims 50 min":     paddedFLAC(8000, 50*60*8000),
		"8 h of WAV of unknown size": longWAV(8000, math.MaxUint32+1),
		"2 min at 384 kHz":           longFLAC(384000, 0, 64000, 720, 120*384000),
	} {
		allocated := allocates(func() {
			if _, err := New(Config{}).Decode(t.Context(), file, file.size, 10*time.Second); err == nil {
				t.Errorf("%s: no error", name)
			}
		})
		if allocated > 8<<20 { // 10 s are 640 kB; the first room is 4 MB; then tables and blocks
			t.Errorf("%s: %d bytes allocated", name, allocated)
		}
	}
}

// Large files are not counted ahead, so that only decoding shows what they hold.
func TestDecodeOfLargeFilesThatLie(t *testing.T) {
	t.Parallel()
	const rate, padding = 16000, 5 << 20
	for _, c := range []struct {
		seconds, claim int
		limit          time.Duration
		want           aviary.Code
	}{
		{3, 3, 0, ""},
		{3, 3, 3 * time.Second, ""},
		{3, 5, 0, aviary.CodeAudioBroken},
		{3, 1, 0, aviary.CodeAudioBroken},
		{3, 1, 2 * time.Second, aviary.CodeAudioTooLong},
		{3, 5, 4 * time.Second, aviary.CodeAudioTooLong},
	} {
		head := streamInfo(rate, 1, 16, int64(c.claim*rate), false)
		head = append(head, 0x81, padding>>16, padding>>8&0xFF, padding&0xFF)
		file := tiled{head: append(head, make([]byte, padding)...), tile: flacFrame(rate, 1, 16, 7)}
		file.size = int64(len(file.head) + c.seconds*len(file.tile))
		pcm, err := New(Config{}).Decode(t.Context(), file, file.size, c.limit)
		if aviary.CodeOf(err) != c.want || (err == nil) != (len(pcm) == c.seconds*rate) {
			t.Errorf("%+v: %d samples, %v", c, len(pcm), err)
		}
	}
}

// paddedFLAC holds a second and, in no frames, enough bytes to make a larger claim possible.
func paddedFLAC(rate int, claim int64) tiled {
	file := longFLAC(rate, rate, 1, 0, claim)
	file.tile = []byte{0}
	file.size += claim/maxFLACFrameFrames*minFLACFrameBytes + 1000
	return file
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		frames int64
		rate   int
		want   time.Duration
	}{
		{0, 16000, 0}, {unknown, 16000, 0}, {1, 16000, 62500}, {1, 384000, 2605}, {3, 44100, 68028}, {16000, 16000, time.Second},
		{3600 * 384000, 384000, time.Hour}, {1<<36 - 1, 4000, 17179869*time.Second + 183750*time.Microsecond}, {math.MaxInt64, 4000, math.MaxInt64},
		{math.MaxInt64, 384000, math.MaxInt64},
	} {
		if got := durationOf(c.frames, c.rate); got != c.want {
			t.Errorf("durationOf(%d, %d) is %d, want %d", c.frames, c.rate, got, c.want)
		}
	}
	for _, c := range []struct {
		limit time.Duration
		rate  int
		want  int64
	}{
		{0, 16000, math.MaxInt64}, {-1, 16000, math.MaxInt64}, {time.Hour, 44100, 158760000}, {time.Millisecond, 44100, 44}, {1, 384000, 0},
		{math.MaxInt64, 384000, 3541774862152233}, {math.MaxInt64, 4000, 36893488147419},
	} {
		if got := framesWithin(c.limit, c.rate); got != c.want {
			t.Errorf("framesWithin(%d, %d) is %d, want %d", c.limit, c.rate, got, c.want)
		}
	}
}

// allocates is how many bytes f allocates in all, also those that it frees.
func allocates(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	n := after.TotalAlloc - before.TotalAlloc
	if underRace {
		n /= 8 // the race detector puts on the heap what else lies on the stack
	}
	return n
}

// probeBytes is the promise of the package: what Probe allocates for any file.
const probeBytes = 512 << 10

func TestProbeIsCheap(t *testing.T) {
	p := New(Config{MaxDuration: time.Hour})
	for _, h := range handedCases(t) {
		b := handedFile(t, h.Name)
		reads := 0
		r := tiled{head: b, size: int64(len(b)), onRead: func() { reads++ }}
		var audio aviary.Audio
		if n := allocates(func() { audio, _ = p.Probe(t.Context(), r, r.size) }); n > probeBytes {
			t.Errorf("%s: Probe allocates %d bytes", h.Name, n)
		}
		// A good WAV costs the head and a look behind its data; a good FLAC is read once.
		if most := 3 + len(b)/(32<<10); audio.Duration > 0 && reads > most {
			t.Errorf("%s: Probe reads %d times, want at most %d", h.Name, reads, most)
		}
	}
	for name, file := range map[string]tiled{"24 h of WAV": longWAV(16000, 24*360*16000), "24 h of FLAC": flacOf(16000, 24*360*16000, 0)} {
		if n := allocates(func() { _, _ = p.Probe(t.Context(), file, file.size) }); n > probeBytes {
			t.Errorf("%s: Probe allocates %d bytes", name, n)
		}
	}
}

// An honest hour allocates its result once, and little besides. (Garbage of blocks is counted too: go-audio/wav makes some for each.)
func TestDecodeAllocatesItsResultOnce(t *testing.T) {
	verbatim := longFLAC(16000, 0, 16, 0, 180*16000)
	verbatim.tile = verbatimFrame(16000)
	verbatim.size = int64(len(verbatim.head)) + 180*int64(len(verbatim.tile))
	for name, file := range map[string]tiled{
		"WAV": longWAV(16000, 180*16000), "FLAC": verbatim, "FLAC of silence": flacOf(16000, 180*16000, 180*16000), "FLAC without a total": flacOf(16000, 180*16000, 0),
	} {
		var pcm aviary.PCM
		n := allocates(func() {
			var err error
			if pcm, err = New(Config{}).Decode(t.Context(), file, file.size, time.Hour); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if spare := cap(pcm) - len(pcm); len(pcm) != 180*16000 || spare > 3*blockFrames {
			t.Errorf("%s: %d samples, room for %d more", name, len(pcm), spare)
		}
		if result := uint64(4 * len(pcm)); n > 2*result {
			t.Errorf("%s: %d bytes allocated for a result of %d", name, n, result)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]tiled{"WAV": longWAV(16000, 360*16000), "FLAC": flacOf(16000, 360*16000, 0)} {
		ctx, cancel := context.WithCancel(t.Context())
		reads := 0
		file.onRead = func() {
			if reads++; reads == 2 {
				cancel()
			}
		}
		_, err := New(Config{}).Decode(ctx, file, file.size, 0)
		if !errors.Is(err, context.Canceled) || aviary.CodeOf(err) != aviary.CodeCanceled {
			t.Errorf("%s: Decode: %v", name, err)
		}
		if reads > 4 {
			t.Errorf("%s: Decode read %d times more after it was canceled", name, reads-2)
		}
		if _, err := New(Config{}).Probe(ctx, file, file.size); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Probe: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	file := flacOf(16000, 360*16000, 0)
	reads := 0
	file.onRead = func() {
		if reads++; reads == 2 {
			cancel()
		}
	}
	if _, err := New(Config{}).Probe(ctx, file, file.size); !errors.Is(err, context.Canceled) {
		t.Errorf("FLAC: Probe in the middle: %v", err)
	}
}
