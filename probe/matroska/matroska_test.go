package matroska

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// all is what a file holds.
func all(b []byte) (f *File, packets []Packet, data [][]byte, err error) {
	if f, err = Open(bytes.NewReader(b), int64(len(b))); err != nil {
		return nil, nil, nil, err
	}
	for p := f.Packets(); ; {
		packet, err := p.Next()
		if errors.Is(err, io.EOF) {
			return f, packets, data, nil
		}
		if err != nil {
			return f, packets, data, err
		}
		whole, err := p.Head(packet, packet.Size)
		if err != nil {
			return f, packets, data, err
		}
		packets, data = append(packets, packet), append(data, bytes.Clone(whole))
	}
}

// The number of packets and their bytes are those that ffprobe 5.1 -count_packets says, of the same track.
func TestHandedFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		codec          string
		packets, bytes int
		channels       int
		others         int
		duration       float64
	}{
		"webm_bomb_2h_all_at_time_0.webm":  {"A_OPUS", 60000, 60000, 1, 0, 1000},
		"webm_bomb_2h_no_duration.webm":    {"A_OPUS", 60000, 60000, 1, 0, 0},
		"webm_chrome_no_duration.webm":     {"A_OPUS", 126, 4714, 1, 0, 0},
		"webm_duration_1s_holds_100s.webm": {"A_OPUS", 1660, 1660, 1, 0, 1000},
		"webm_duration_nan.webm":           {"A_OPUS", 50, 1963, 1, 0, math.NaN()},
		"webm_opus_with_duration.webm":     {"A_OPUS", 126, 4894, 1, 0, 2508},
		"webm_scale_0.webm":                {"A_OPUS", 126, 4714, 1, 0, 2500},
		"webm_vorbis.webm":                 {"A_VORBIS", 68, 7650, 1, 0, 1512},
		"mkv_flac.mkv":                     {"A_FLAC", 14, 22780, 1, 0, 1000},
		"mkv_pcm.mka":                      {"A_PCM/INT/LIT", 25, 64000, 2, 0, 1000},
		"mkv_track1_1s_track2_2h.mkv":      {"A_PCM/INT/LIT", 25, 32000, 1, 0, 7192576},
		"mkv_video_plus_audio.mkv":         {"A_OPUS", 76, 2985, 1, 1, 4007},
	} {
		b, err := os.ReadFile(filepath.Join("..", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		f, packets, data, err := all(b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		size := 0
		for i, d := range data {
			if int64(len(d)) != packets[i].Size {
				t.Fatalf("%s: a packet of %d bytes has %d", name, packets[i].Size, len(d))
			}
			size += len(d)
		}
		if len(packets) != want.packets || size != want.bytes || f.Track.CodecID != want.codec || f.Track.Channels != want.channels || f.OtherTracks != want.others {
			t.Errorf("%s: %d packets of %d bytes, %+v; want %+v", name, len(packets), size, f, want)
		}
		if f.Duration != want.duration && !(math.IsNaN(f.Duration) && math.IsNaN(want.duration)) {
			t.Errorf("%s claims %v, want %v", name, f.Duration, want.duration)
		}
	}
}

func TestTrack(t *testing.T) {
	t.Parallel()
	strip := el(idContentEncodings, el(idContentEncoding, el(idCompression, num(idCompressionAlgo, 3), el(idCompressionSetting, []byte("\x01\x02")))))
	rich := entry(300, 2, el(idCodecPrivate, []byte("secret")), num(idCodecDelay, 6500000), strip)
	b := live(el(0xEC, make([]byte, 100)), el(idTracks, entry(7, 1), rich, entry(2, 2), entry(9, 17)), info,
		cluster(5, el(idSimpleBlock, []byte("\x41\x2c\x00\x03\x80abc")), el(idSimpleBlock, []byte("\x82\x00\x04\x80other")), el(idSimpleBlock, []byte("\x41\x2c\xff\xfe\x80"))))
	f, packets, data, err := all(b)
	if err != nil {
		t.Fatal(err)
	}
	track := f.Track
	if track.CodecID != "A_OPUS" || string(track.Private) != "secret" || track.CodecDelayNanos != 6500000 || track.SampleRate != 48000 || track.Channels != 2 ||
		f.AudioTracks != 2 || f.OtherTracks != 2 || f.Duration != 1234.5 || f.TimestampScale != 1e6 || f.DocType != "webm" {
		t.Errorf("%+v", f)
	}
	if !slices.EqualFunc(packets, []Packet{{Size: 5, Time: 8}, {Size: 2, Time: 3}}, func(a, b Packet) bool { return a.Size == b.Size && a.Time == b.Time && a.DiscardNanos == 0 }) || string(data[0]) != "\x01\x02abc" || string(data[1]) != "\x01\x02" {
		t.Errorf("%v, %q", packets, data)
	}
	if f, _, _, err = all(live(el(idTracks, el(idTrackEntry, num(idTrackNumber, 1), num(idTrackType, 2), el(idAudio))), cluster(0))); err != nil ||
		f.Track.SampleRate != 8000 || f.Track.Channels != 1 || f.TimestampScale != 1e6 || f.Duration != 0 {
		t.Errorf("defaults: %+v, %v", f, err)
	}
}

func TestLacing(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("y"), 600)
	for name, c := range map[string]struct {
		content []byte
		want    []string
	}{
		"none":              {block(1, 0, []byte("abc")...), []string{"abc"}},
		"none, empty":       {block(1, 0), []string{""}},
		"xiph":              {block(1, laceXiph, append([]byte{2, 1, 0}, "abc"...)...), []string{"a", "", "bc"}},
		"xiph, long":        {block(1, laceXiph, slices.Concat([]byte{2, 255, 255, 90, 255, 0}, long, long[:255], []byte("z"))...), []string{string(long), string(long[:255]), "z"}},
		"xiph, one":         {block(1, laceXiph, append([]byte{0}, "abc"...)...), []string{"abc"}},
		"fixed":             {block(1, laceFixed, append([]byte{2}, "aabbcc"...)...), []string{"aa", "bb", "cc"}},
		"fixed, one":        {block(1, laceFixed, append([]byte{0}, "aabbcc"...)...), []string{"aabbcc"}},
		"fixed, of nothing": {block(1, laceFixed, 3), []string{"", "", "", ""}},
		// 800, 500, 1000 bytes are the example of RFC 9559, section 10.3.3.
		"ebml": {block(1, laceEBML, slices.Concat([]byte{3, 0x43, 0x20, 0x5E, 0xD3, 0x80 + 63 + 10}, make([]byte, 800), make([]byte, 500), make([]byte, 510), []byte("end"))...),
			[]string{string(make([]byte, 800)), string(make([]byte, 500)), string(make([]byte, 510)), "end"}},
		"ebml, one":   {block(1, laceEBML, append([]byte{0}, "abc"...)...), []string{"abc"}},
		"ebml, equal": {block(1, laceEBML, append([]byte{2, 0x82, 0x80 + 63}, "aabbcc"...)...), []string{"aa", "bb", "cc"}},
	} {
		for kind, element := range map[string][]byte{
			"SimpleBlock":         el(idSimpleBlock, c.content),
			"BlockGroup":          el(idBlockGroup, el(idBlock, c.content)),
			"BlockGroup, padding": el(idBlockGroup, el(0x9B, []byte{20}), el(idBlock, c.content), el(idDiscardPadding, []byte{0xF0, 0})),
		} {
			last := simple(2, 'e', 'n', 'd')
			file := recording(cluster(10, element, last))
			_, packets, data, err := all(file)
			if err != nil {
				t.Errorf("%s in a %s: %v", name, kind, err)
				continue
			}
			var got []string
			for i, d := range data {
				got = append(got, string(d))
				want := Packet{Size: int64(len(d)), Block: packets[0].Block, Time: 11}
				if i == len(data)-1 {
					want.Time, want.Block = 12, int64(len(file)-len(last))
				} else if i == len(data)-2 && strings.Contains(kind, "padding") {
					want.DiscardNanos = -4096
				}
				if packets[i] != want {
					t.Errorf("%s in a %s: packet %d is %+v, want %+v", name, kind, i, packets[i], want)
				}
			}
			if !slices.Equal(got, append(slices.Clone(c.want), "end")) {
				t.Errorf("%s in a %s: %.100q", name, kind, got)
			}
		}
	}
}

func TestSizesThatAreUnknown(t *testing.T) {
	t.Parallel()
	one := slices.Concat(open(idCluster, unknown), num(idTimestamp, 0), simple(0, 'a'), el(0xEC, []byte{0}))
	two := slices.Concat(open(idCluster, unknown), num(idTimestamp, 50), simple(0, 'b'))
	known := cluster(70, simple(1, 'c'))
	cues := el(idCues, make([]byte, 20))
	for name, file := range map[string][]byte{
		"clusters":                     recording(one, two, known),
		"with an index between":        recording(one, cues, two, known, cues),
		"with tags between":            recording(cues, one, el(idTags), two, el(idSeekHead), el(idInfo), el(idTracks), known, el(idAttachments), el(idChapters)),
		"within a segment of its size": slices.Concat(webmHead, el(idSegment, info, el(idTracks, entry(1, 2)), one, two, known)),
		"with junk behind the segment": slices.Concat(webmHead, el(idSegment, info, el(idTracks, entry(1, 2)), one, two, known), []byte("junk that is no element")),
		"with a byte behind":           slices.Concat(webmHead, el(idSegment, info, el(idTracks, entry(1, 2)), one, two, known), []byte("j")),
		"a void before the segment":    slices.Concat(webmHead, el(0xEC, []byte("xyz")), open(idSegment, unknown), el(idTracks, entry(1, 2)), one, two, known),
	} {
		_, _, data, err := all(file)
		if got := string(bytes.Join(data, nil)); err != nil || got != "abc" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Blocks of other tracks and those of BlockGroups without a block are no packets, and no timestamp makes a difference.
func TestBlocksThatAreNotOurs(t *testing.T) {
	t.Parallel()
	other := []byte("\x82\x00\x00\x06")
	b := live(el(idTracks, entry(1, 2), entry(2, 2)), el(idCluster, el(idSimpleBlock, other), simple(0, 'a'), el(idBlockGroup, el(idBlock, other)), el(idBlockGroup),
		num(idTimestamp, math.MaxUint64), simple(-1, 'b'), el(idBlockGroup, el(idDiscardPadding, []byte{1})), simple(1, 'c')), cluster(0), el(idCluster))
	_, packets, data, err := all(b)
	if err != nil || string(bytes.Join(data, nil)) != "abc" {
		t.Errorf("%q, %v", data, err)
	}
	for _, p := range packets {
		if p.DiscardNanos != 0 {
			t.Errorf("%+v", packets)
		}
	}
}

func TestWriter(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	track := Track{CodecID: "A_TEST", Private: []byte("setup"), SampleRate: 44100, Channels: 6, BitDepth: 24}
	w, err := NewWriter(&file, track)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	var times []int64
	frames := int64(0)
	for i := range 5000 {
		data := strings.Repeat(fmt.Sprint(i), i%7)
		n := []int64{0, 1, 1024, 100000}[i%4]
		want, times = append(want, data), append(times, frames*1000/44100)
		if err := w.WritePacket([]byte(data), n); err != nil {
			t.Fatal(err)
		}
		frames += n
	}
	f, packets, data, err := all(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got := f.Track
	if got.CodecID != track.CodecID || string(got.Private) != "setup" || got.SampleRate != 44100 || got.Channels != 6 || got.BitDepth != 24 || got.CodecDelayNanos != 0 {
		t.Errorf("%+v", got)
	}
	if len(data) != len(want) {
		t.Fatalf("%d packets of %d", len(data), len(want))
	}
	for i := range data {
		if string(data[i]) != want[i] || packets[i].Time != times[i] {
			t.Fatalf("packet %d at %d is %q, want %q at %d", i, packets[i].Time, data[i], want[i], times[i])
		}
	}
}

// A reader's failure is not the file's, wherever it happens.
func TestFailuresOfTheReader(t *testing.T) {
	t.Parallel()
	onFire := errors.New("disk on fire")
	file := recording(cluster(0, simple(0, make([]byte, 3*windowBytes)...), el(idBlockGroup, el(idBlock, block(0, 0, make([]byte, windowBytes)...)), el(idDiscardPadding, []byte{1}))), cluster(9, simple(1, 'a')))
	for _, cause := range []error{onFire, io.EOF, nil} {
		for good := 0; good < len(file); good += 10000 {
			r := failingReader{file, int64(good), cause}
			f, err := Open(r, int64(len(file)))
			if err == nil {
				p := f.Packets()
				for err == nil {
					var packet Packet
					if packet, err = p.Next(); err == nil {
						_, err = p.Head(packet, packet.Size)
					}
				}
			}
			var e *Error
			if errors.As(err, &e) || errors.Is(err, io.EOF) || errors.Is(cause, onFire) != errors.Is(err, onFire) {
				t.Errorf("%v after %d bytes: %v", cause, good, err)
			}
		}
	}
}

type failingReader struct {
	b    []byte
	good int64
	err  error
}

func (f failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= f.good {
		return copy(p, f.b[off:]), nil
	}
	return copy(p, f.b[min(off, f.good):f.good]), f.err
}

// Reading goes forwards, in large pieces, leaves out what need not be seen, and allocates the window and little else.
func TestReadingIsCheap(t *testing.T) {
	var clusters [][]byte
	for i := range 200 {
		picture := el(idSimpleBlock, append([]byte("\x82\x00\x00\x80"), make([]byte, 200000)...))
		clusters = append(clusters, cluster(uint64(i), picture, simple(1, make([]byte, 100)...), el(idBlockGroup, el(idBlock, block(2, 0, make([]byte, 900)...)))))
	}
	file := live(el(idTracks, entry(1, 2), entry(2, 1)), slices.Concat(clusters...))
	r := &watchedReader{b: file}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := Open(r, int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	n, p := 0, f.Packets()
	for ; ; n++ {
		packet, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Head(packet, 64); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if n != 400 || r.reads > 410 || r.bytes > int64(len(file)) || r.back > 1 {
		t.Errorf("%d packets, %d reads of %d bytes of %d, %d of them backwards", n, r.reads, r.bytes, len(file), r.back)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 3*windowBytes {
		t.Errorf("%d bytes allocated", allocated)
	}
}

type watchedReader struct {
	b           []byte
	reads, back int
	bytes, last int64
}

func (r *watchedReader) ReadAt(p []byte, off int64) (int, error) {
	if off < r.last {
		r.back++
	}
	n := copy(p, r.b[off:])
	r.reads, r.bytes, r.last = r.reads+1, r.bytes+int64(n), off
	return n, nil
}

func TestReader(t *testing.T) {
	t.Parallel()
	data := make([]byte, 200000)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	strip := el(idContentEncodings, el(idContentEncoding, el(idCompression, num(idCompressionAlgo, 3), el(idCompressionSetting, data[:3]))))
	for name, more := range map[string][]byte{"plain": nil, "stripped": strip} {
		file := live(el(idTracks, entry(1, 2, more)), cluster(0, simple(0, data...), simple(0, 'x')))
		f, err := Open(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Concat(f.Track.stripped, data)
		p := f.Packets()
		packet, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := io.ReadAll(p.Reader(packet)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
			}
			if got, err := p.Head(packet, 10); err != nil || !bytes.Equal(got, want[:10]) {
				t.Errorf("%s: starts with %x, %v", name, got, err)
			}
			if got, err := p.Head(packet, 1<<40); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: all of it are %d bytes, %v", name, len(got), err)
			}
		}
		if packet, err = p.Next(); err != nil || packet.Size != int64(len(f.Track.stripped))+1 {
			t.Errorf("%s: then %+v, %v", name, packet, err)
		}
		for range 2 {
			if _, err := p.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: behind the end: %v", name, err)
			}
		}
	}
}

func FuzzMatroska(f *testing.F) {
	names, err := filepath.Glob(filepath.Join("..", "testdata", "*"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		if base := filepath.Base(name); strings.HasPrefix(base, "webm_") || strings.HasPrefix(base, "mkv_") {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b[:min(len(b), 8<<10)])
		}
	}
	f.Add(recording(cluster(0, el(idSimpleBlock, block(0, laceEBML, 2, 0x82, 0x80+63, 'a', 'a', 'b', 'b', 'c', 'c'))), cluster(9, el(idBlockGroup, el(idBlock, block(0, 2, 1, 1, 'a', 'b')), el(idDiscardPadding, []byte{1, 2})))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		file, err := Open(bytes.NewReader(b), int64(len(b)))
		size, n := int64(0), 0
		if err == nil {
			p := file.Packets()
			for err == nil {
				var packet Packet
				if packet, err = p.Next(); err != nil {
					break
				}
				// A packet without bytes takes at most a 256th of a block, which has some.
				if size, n = size+packet.Size, n+1; size-int64(n*len(file.Track.stripped)) > int64(len(b)) || n > 256*len(b) {
					t.Fatalf("%d packets of %d bytes in %d", n, size, len(b))
				}
				var head []byte
				if head, err = p.Head(packet, packet.Size); err == nil && int64(len(head)) != packet.Size {
					t.Fatalf("%d bytes of %d", len(head), packet.Size)
				}
			}
		}
		runtime.ReadMemStats(&after)
		var e *Error
		if !errors.As(err, &e) && !errors.Is(err, io.EOF) {
			t.Fatalf("%v is no verdict", err)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20+4*uint64(len(b)) {
			t.Fatalf("%d bytes allocated for %d", allocated, len(b))
		}
	})
}
