package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// An Opus stream of 2 s, 50 packets on each of two pages, whose positions and pages say other things.
func TestOggPositions(t *testing.T) {
	t.Parallel()
	const second, late = opusRate, 5000 * opusRate
	type page struct {
		packets  int
		position int64
		flags    byte
	}
	for _, c := range []struct {
		what  string
		pages []page
		want  int64 // frames; negative: broken
	}{
		{"whole", []page{{50, second, 0}, {50, 2 * second, oggLast}}, 2*second - testPreSkip},
		{"trimmed at the end", []page{{50, second, 0}, {50, 2*second - 700, oggLast}}, 2*second - 700 - testPreSkip},
		{"trimmed by all of the last page", []page{{50, second, 0}, {50, second, oggLast}}, second - testPreSkip},
		{"trimmed by more than the last page", []page{{50, second, 0}, {50, second - 3000, oggLast}}, -1},
		{"trimmed without an end mark", []page{{50, second, 0}, {50, 2*second - 700, 0}}, 2*second - 700 - testPreSkip},
		{"trimmed by a page of its own", []page{{50, second, 0}, {50, 2 * second, 0}, {0, 2*second - 500, oggLast}}, 2*second - 500 - testPreSkip},
		{"a page of its own without a position", []page{{50, second, 0}, {50, 2 * second, 0}, {0, unknown, oggLast}}, 2*second - testPreSkip},
		{"one page", []page{{50, second - 700, oggLast}}, second - 700 - testPreSkip},
		{"one page that claims 3 h", []page{{50, 3 * 3600 * second, oggLast}}, -1},
		{"the last page claims 3 h", []page{{50, second, 0}, {50, 3 * 3600 * second, oggLast}}, -1},
		{"the first page claims 3 h", []page{{50, 3 * 3600 * second, 0}, {50, 2 * second, oggLast}}, -1},
		{"the last page claims a little more", []page{{50, second, 0}, {50, 2*second + 2400, oggLast}}, 2*second - testPreSkip},
		{"the last page claims a little too much", []page{{50, second, 0}, {50, 2*second + 2401, oggLast}}, -1},
		{"a page in the middle ends sooner", []page{{50, second - 3000, 0}, {50, 2 * second, oggLast}}, -1},
		{"a page in the middle ends later", []page{{50, second, 0}, {50, 2*second + 5000, 0}, {50, 3 * second, oggLast}}, -1},
		{"audio is missing in the middle", []page{{50, second, 0}, {50, 3 * second, 0}, {50, 4 * second, oggLast}}, -1},
		{"a live stream that was joined", []page{{50, late, 0}, {50, late + second - 700, oggLast}}, 2*second - 700 - testPreSkip},
		{"no position", []page{{50, unknown, 0}, {50, 2 * second, oggLast}}, -1},
		{"no position at the end", []page{{50, second, 0}, {50, unknown, oggLast}}, -1},
		{"a negative position", []page{{50, math.MinInt64, 0}, {50, 2 * second, oggLast}}, -1},
		{"a position beyond all", []page{{50, math.MaxInt64, 0}, {50, math.MaxInt64, oggLast}}, -1},
		{"goes on behind its end", []page{{50, second, oggLast}, {50, 2 * second, oggLast}}, -1},
		{"shorter than what is to be skipped", []page{{50, 300, oggLast}}, -1},
		{"no audio", nil, -1},
	} {
		w := opusStart(1, 1)
		for _, p := range c.pages {
			w.page(p.flags, p.position, quiet(p.packets)...)
		}
		expectFrames(t, c.what, w.out, c.want)
	}
}

// expectFrames probes and decodes a file of 48 kHz or 16 kHz. Negative frames stand for one that is broken.
func expectFrames(t *testing.T, what string, file []byte, want int64) {
	t.Helper()
	audio, err := New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
	pcm, decodeErr := New(Config{}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
	if aviary.CodeOf(err) != aviary.CodeOf(decodeErr) || err == nil && (pcm.Duration()-audio.Duration).Abs() > time.Millisecond {
		t.Errorf("%s: probed as %v (%v), decoded as %v (%v)", what, audio.Duration, err, pcm.Duration(), decodeErr)
	}
	switch {
	case want < 0 && aviary.CodeOf(err) != aviary.CodeAudioBroken:
		t.Errorf("%s: %+v, %v; want it refused as broken", what, audio, err)
	case want >= 0 && (err != nil || audio.Duration != durationOf(want, audio.SampleRate)):
		t.Errorf("%s: %v, %v; want %d frames", what, audio.Duration, err, want)
	}
}

func TestOggPages(t *testing.T) {
	t.Parallel()
	const second = opusRate
	whole := quietOpus(1, 1, 3)
	pages := oggPages(t, whole)
	video := oggPages(t, slices.Concat(bareOgg(9, "\x80theora\x03\x02\x01"), oggPage(0, 3, 9, 1, []byte{4}, []byte("data"))))
	changed := bytes.Clone(whole)
	changed[len(pages[0])+len(pages[1])+100]++
	comments := opusStart(1, 1)
	comments.out, comments.number = comments.out[:len(pages[0])], 1
	comments.long(0, append(bytes.Clone(opusTags), make([]byte, 3<<20)...)).page(oggLast, second, quiet(50)...)
	spread := opusStart(1, 1)
	spread.raw(0, unknown, []byte{255}, append([]byte{0x48}, make([]byte, 254)...)).raw(oggContinued|oggLast, 960, []byte{100}, make([]byte, 100))
	open := opusStart(1, 1)
	open.page(0, second, quiet(50)...).raw(oggLast, unknown, []byte{255}, make([]byte, 255))
	for what, c := range map[string]struct {
		file []byte
		want int64
	}{
		"whole":                         {whole, 3*second - testPreSkip},
		"a page is missing":             {slices.Concat(pages[0], pages[1], pages[2], pages[4]), -1},
		"a page stands twice":           {slices.Concat(pages[0], pages[1], pages[2], pages[3], pages[3], pages[4]), -1},
		"pages stand in another order":  {slices.Concat(pages[0], pages[1], pages[3], pages[2], pages[4]), -1},
		"the last page is missing":      {slices.Concat(pages[0], pages[1], pages[2], pages[3]), 2*second - testPreSkip},
		"the first audio is missing":    {slices.Concat(pages[0], pages[1], pages[3], pages[4]), 2*second - testPreSkip},
		"a wrong checksum":              {changed, -1},
		"no tags":                       {slices.Concat(pages[0], pages[2], pages[3], pages[4]), -1},
		"cut within a page":             {whole[:len(whole)-1], -1},
		"cut within a page header":      {whole[:len(whole)-len(pages[4])+10], -1},
		"junk at the end":               {append(bytes.Clone(whole), "TAGjunk"...), 3*second - testPreSkip},
		"zeros at the end":              {append(bytes.Clone(whole), make([]byte, 200<<10)...), 3*second - testPreSkip},
		"junk and a page at the end":    {slices.Concat(whole, []byte("junk"), pages[4]), -1},
		"junk in the middle":            {slices.Concat(pages[0], pages[1], pages[2], []byte("junk"), pages[3], pages[4]), -1},
		"junk instead of the end":       {slices.Concat(pages[0], pages[1], pages[2], []byte("junk")), -1},
		"a page of an unknown stream":   {slices.Concat(pages[0], pages[1], pages[2], video[1], pages[3], pages[4]), -1},
		"video pages around":            {slices.Concat(video[0], pages[0], pages[1], pages[2], video[1], pages[3], pages[4], video[1]), 3*second - testPreSkip},
		"the magic alone":               {[]byte("OggS"), -1},
		"a future version":              {append([]byte("OggS\x01"), whole[5:]...), -1},
		"starts in the middle":          {slices.Concat(pages[1:]...), -1},
		"two streams of one number":     {slices.Concat(pages[0], pages[0], pages[1], pages[2]), -1},
		"3 MB of comments":              {comments.out, second - testPreSkip},
		"a packet on two pages":         {spread.out, 960 - testPreSkip},
		"the end within a packet":       {open.out, -1},
		"a first page with two packets": {slices.Concat((&oggWriter{}).page(oggFirst, 0, opusHeadPacket(1, 0), opusTags).page(oggLast, second, quiet(50)...).out), -1},
	} {
		expectFrames(t, what, c.file, c.want)
	}
}

func TestOggChains(t *testing.T) {
	t.Parallel()
	const second = opusRate
	one := quietOpus(1, 1, 1)
	vorbis := handedFile(t, "vorbis_8k_mono.ogg") // 16,000 frames
	vorbisFast := handedFile(t, "vorbis_22050_mono.ogg")
	video := append(bareOgg(9, "\x80theora\x03\x02\x01"), oggPage(0, 3, 9, 1, []byte{4}, []byte("data"))...)
	many := bytes.Repeat(one, maxOggLinks+1)
	for what, c := range map[string]struct {
		file []byte
		want int64
	}{
		"two":                         {slices.Concat(one, quietOpus(2, 1, 2)), 3*second - 2*testPreSkip},
		"two of one number":           {slices.Concat(one, one), 2*second - 2*testPreSkip},
		"two without end marks":       {slices.Concat(withoutEnd(t, one), withoutEnd(t, one)), 2*second - 2*testPreSkip},
		"mono and stereo":             {slices.Concat(one, quietOpus(2, 2, 2)), -1},
		"Opus and Vorbis":             {slices.Concat(one, vorbis), -1},
		"Vorbis":                      {slices.Concat(vorbis, vorbis), 32000},
		"Vorbis of two rates":         {slices.Concat(vorbis, vorbisFast), -1},
		"video in between":            {slices.Concat(one, video, one), 2*second - 2*testPreSkip},
		"headers in between":          {slices.Concat(one, opusStart(3, 1).out, one), 2*second - 2*testPreSkip},
		"cut headers at the end":      {slices.Concat(one, opusStart(3, 1).out[:60]), -1},
		"more than a thousand":        {many, -1},
		"junk in between":             {slices.Concat(one, []byte("junk"), one), -1},
		"a link whose header is bad":  {slices.Concat(one, (&oggWriter{}).page(oggFirst, 0, opusHeadPacket(0, 0)).out), -1},
		"a link that holds something": {slices.Concat(one, bareOgg(4, "something")), math.MinInt64},
	} {
		if c.want == math.MinInt64 {
			expectCode(t, what, c.file, aviary.CodeMediaTypeUnsupported)
			continue
		}
		expectFrames(t, what, c.file, c.want)
	}
}

// withoutEnd removes the end mark of a file.
func withoutEnd(t testing.TB, file []byte) []byte {
	t.Helper()
	file = bytes.Clone(file)
	pages := oggPages(t, file)
	pages[len(pages)-1][5] &^= oggLast
	return oggRepaired(file)
}

func expectCode(t *testing.T, what string, file []byte, want aviary.Code) {
	t.Helper()
	_, err := New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
	if aviary.CodeOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// The streams of a chain are decoded as they are alone: nothing of one reaches the next.
func TestOggChainsDecodeAlone(t *testing.T) {
	t.Parallel()
	for _, c := range [][]string{
		{"vorbis_8k_mono.ogg", "vorbis_8k_mono.ogg"}, {"golden/vorbis_managed.ogg", "golden/vorbis_q10.ogg", "golden/vorbis_managed.ogg"},
		{"golden/opus_silk_60ms.opus", "golden/opus_hybrid.opus"}, {"oggflac_16k.oga", "oggflac_16k.oga"},
	} {
		var chain []byte
		var want []float32
		for _, name := range c {
			file := handedFile(t, name)
			chain = append(chain, file...)
			want = append(want, decodeWhole(t, New(Config{}), file)...)
		}
		if got := decodeWhole(t, New(Config{}), chain); !slices.Equal(got, want) {
			t.Errorf("%v: %d samples, want %d, or others", c, len(got), len(want))
		}
	}
}

// decodeWhole decodes a file at its own rate, interleaved.
func decodeWhole(t testing.TB, p *Prober, file []byte) (all []float32) {
	t.Helper()
	tr, err := p.open(t.Context(), bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	channels := tr.about().channels
	buf := make([]float32, 1000*channels)
	for {
		n, err := tr.read(t.Context(), buf)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, buf[:n*channels]...)
	}
}

func TestOggStreams(t *testing.T) {
	t.Parallel()
	a, b := oggPages(t, quietOpus(1, 1, 2)), oggPages(t, quietOpus(2, 2, 3))
	both := slices.Concat(a[0], b[0], a[1], b[1], b[2], a[2], a[3], b[3], b[4])
	audio, err := New(Config{}).Probe(t.Context(), bytes.NewReader(both), int64(len(both)))
	if err != nil || audio.Channels != 1 || audio.Duration != durationOf(2*opusRate-testPreSkip, opusRate) || len(audio.Warnings) != 1 {
		t.Errorf("two audio streams: %+v, %v", audio, err)
	}
	cut := withoutEnd(t, quietOpus(1, 1, 2))
	audio, err = New(Config{}).Probe(t.Context(), bytes.NewReader(cut), int64(len(cut)))
	if err != nil || len(audio.Warnings) != 1 || !strings.Contains(audio.Warnings[0], "cut off") {
		t.Errorf("a stream without an end mark: %+v, %v", audio, err)
	}
	skeleton := bareOgg(8, "fishead\x00\x03\x00")
	for what, c := range map[string]struct {
		file []byte
		want aviary.Code
		says string
	}{
		"video alone":      {bareOgg(9, "\x80theora\x03\x02\x01"), aviary.CodeAudioNoStream, "no audio"},
		"a skeleton alone": {skeleton, aviary.CodeAudioNoStream, "no audio"},
		"Speex":            {slices.Concat(skeleton, bareOgg(3, "Speex   1.2")), aviary.CodeMediaTypeUnsupported, "Speex"},
		"CELT":             {bareOgg(3, "CELT    0.11"), aviary.CodeMediaTypeUnsupported, "CELT"},
		"something":        {bareOgg(3, "something"), aviary.CodeMediaTypeUnsupported, "unknown kind"},
		"a future Opus":    {(&oggWriter{}).page(oggFirst, 0, append([]byte(opusMagic+"\x10\x01"), make([]byte, 20)...)).out, aviary.CodeMediaTypeUnsupported, "version 16"},
		"more than 64": {bytes.Join(slices.Collect(func(yield func([]byte) bool) {
			for i := range uint32(65) {
				yield(bareOgg(i, "something"))
			}
		}), nil), aviary.CodeAudioBroken, "more than 64"},
		"Opus of 5.1":         {handedFile(t, "golden/opus_5p1.opus"), aviary.CodeMediaTypeUnsupported, "this server has none"},
		"Vorbis of 9":         {vorbisOf(t, 9), aviary.CodeMediaTypeUnsupported, "this server has none"},
		"Vorbis of 0":         {vorbisOf(t, 0), aviary.CodeAudioBroken, "damaged"},
		"Opus of 3, family 0": {(&oggWriter{}).page(oggFirst, 0, opusHeadPacket(3, 0)).out, aviary.CodeAudioBroken, "3 channels"},
	} {
		_, err := New(Config{}).Probe(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
		if aviary.CodeOf(err) != c.want || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s with %q", what, err, c.want, c.says)
		}
	}
}

// What ffmpeg decodes is trimmed like the rest, also in the middle of a chain.
func TestOggChainWithFFmpeg(t *testing.T) {
	t.Parallel()
	p := New(Config{FFmpeg: needFFmpeg(t)})
	file := handedFile(t, "golden/opus_5p1.opus")
	one := decodeWhole(t, p, file)
	two := decodeWhole(t, p, slices.Concat(file, file))
	if frames := len(one) / 6; frames != opusRate/5 || len(two) != 2*len(one) || difference(two[:len(one)], one) > -120 {
		t.Errorf("%d frames, two of them give %d", frames, len(two)/6)
	}
	// ffmpeg does not start over at the second stream, which takes it a while to get right.
	if at := len(one) + 6*opusRate*3/20; difference(two[at:], one[at-len(one):]) > -30 {
		t.Errorf("the second stream stands at another place")
	}
}

// vorbisOf is a file of one channel that claims others.
func vorbisOf(t testing.TB, channels byte) []byte {
	t.Helper()
	file := bytes.Clone(handedFile(t, "vorbis_8k_mono.ogg"))
	file[28+11] = channels
	return oggRepaired(file)
}

func TestOggFLAC(t *testing.T) {
	t.Parallel()
	frame := flacFrame(4000, 1, 16, 7)
	damaged := bytes.Clone(frame)
	damaged[len(damaged)-1]++
	loud := verbatimFrame(16000)
	end := func(w *oggWriter, position int64, packets ...[]byte) []byte {
		return w.page(oggLast, position, packets...).out
	}
	for what, c := range map[string]struct {
		file []byte
		want int64
	}{
		"whole":                       {end(oggFLACStart(8000, 1, 1), 8000, frame, frame), 8000},
		"no total, no metadata":       {end(oggFLACStart(0, 0, 0), 8000, frame, frame), 8000},
		"metadata that is not told":   {end(oggFLACStart(8000, 3, 0), 8000, frame, frame), 8000},
		"metadata that is not there":  {end(oggFLACStart(8000, 1, 9), 8000, frame, frame), 8000},
		"metadata on the audio page":  {end(oggFLACStart(8000, 0, 1), 8000, []byte{0x84, 0, 0, 0}, frame, frame), 8000},
		"metadata among the audio":    {end(oggFLACStart(8000, 1, 1), 8000, frame, []byte{0x84, 0, 0, 0}, frame), -1},
		"a total of more":             {end(oggFLACStart(16000, 1, 1), 8000, frame, frame), -1},
		"a total of less":             {end(oggFLACStart(4000, 1, 1), 8000, frame, frame), -1},
		"a position of more":          {end(oggFLACStart(8000, 1, 1), 80000, frame, frame), -1},
		"a packet without bytes":      {end(oggFLACStart(8000, 1, 1), 8000, frame, nil, frame, nil), 8000},
		"two frames in a packet":      {end(oggFLACStart(8000, 1, 1), 8000, append(bytes.Clone(frame), frame...)), -1},
		"more behind a frame":         {end(oggFLACStart(8000, 1, 1), 8000, frame, append(bytes.Clone(frame), 0)), -1},
		"a wrong checksum":            {end(oggFLACStart(8000, 1, 1), 8000, frame, damaged), -1},
		"a frame of another rate":     {end(oggFLACStart(8000, 1, 1), 8000, frame, rawFrame(4000, 4, 0, 16, 7)), -1},
		"a frame that is cut":         {end(oggFLACStart(8000, 1, 1), 8000, frame, frame[:len(frame)-1]), -1},
		"a frame of 32 kB":            {end(oggFLACStart(20000, 1, 1), 20000, frame, loud), 20000},
		"a frame on several pages":    {oggFLACStart(0, 1, 1).long(65536, largeFrame()).out, 65536},
		"a frame of more than a MB":   {oggFLACStart(0, 1, 1).long(16000, append(bytes.Clone(loud), make([]byte, 1<<20)...)).out, -1},
		"STREAMINFO that is cut":      {(&oggWriter{}).page(oggFirst, 0, []byte("\x7fFLAC\x01\x00\x00\x00fLaC\x00\x00\x00\x22")).out, -1},
		"another version of all this": {(&oggWriter{}).page(oggFirst, 0, put(be, "\x7fFLAC\x02\x00\x00\x00", streamInfo(16000, 1, 16, 0, true))).out, -1},
	} {
		expectFrames(t, what, c.file, c.want)
	}
}

// largeFrame is one of 131 kB.
func largeFrame() []byte { return verbatimFrame(65536) }

// Streams that are long in few bytes: a day of Opus packets of one byte and 120 ms, and of Vorbis packets of one byte and the longest block.
func TestOggBombs(t *testing.T) {
	const limit = 10 * time.Second
	opus := opusStart(1, 1).out
	tile := (&oggWriter{serial: 1}).page(0, 0, slices.Repeat([][]byte{{0x59}}, 255)...).out
	pages := oggPages(t, handedFile(t, "vorbis_8k_mono.ogg"))
	vorbis := slices.Concat(pages[0], pages[1])
	vorbisTile := (&oggWriter{}).page(0, 0, slices.Repeat([][]byte{{0x02}}, 255)...).out
	for name, file := range map[string][]byte{
		"Opus":   appendTiles(opus, tile, 24*3600*opusRate/(255*5760), 255*5760),
		"Vorbis": appendTiles(vorbis, vorbisTile, 24*3600*8000/(255*256), 255*256),
	} {
		p := New(Config{MaxDuration: time.Hour})
		var audio aviary.Audio
		var err error
		if n := allocates(func() { audio, err = p.Probe(t.Context(), bytes.NewReader(file), int64(len(file))) }); err != nil || audio.Duration <= time.Hour || n > probeBytes {
			t.Errorf("%s: probed as %v, %v, %d bytes allocated", name, audio.Duration, err, n)
		}
		if n := allocates(func() { _, err = p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), limit) }); aviary.CodeOf(err) != aviary.CodeAudioTooLong || n > 8<<20 {
			t.Errorf("%s: %v, %d bytes allocated", name, err, n)
		}
	}
}

// appendTiles repeats a page, whose packets have so many frames together, with numbers and positions that go on.
func appendTiles(file, tile []byte, n, frames int) []byte {
	for i := range n {
		page := bytes.Clone(tile)
		le.PutUint64(page[6:], uint64((i+1)*frames))
		le.PutUint32(page[14:], le.Uint32(file[14:]))
		le.PutUint32(page[18:], uint32(i+2))
		file = append(file, oggSigned(page)...)
	}
	return file
}

func TestOggReaderFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	for _, name := range []string{"vorbis_8k_mono.ogg", "opus_48k_stereo.opus", "oggflac_16k.oga"} {
		b := handedFile(t, name)
		for _, good := range []int64{0, 100, 4097, int64(len(b)) - 1} {
			for _, cause := range []error{broken, io.EOF} {
				r := failingReader{bytes.NewReader(b), good, cause}
				_, err := New(Config{}).Decode(t.Context(), r, int64(len(b)), 0)
				if aviary.CodeOf(err) != aviary.CodeInternal {
					t.Errorf("%s fails with %v after %d bytes: %v, want an internal error", name, cause, good, err)
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := quietOpus(1, 1, 2)
	if _, err := New(Config{}).Probe(ctx, bytes.NewReader(file), int64(len(file))); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func FuzzOgg(f *testing.F) {
	seeds(f, "ogg_")
	f.Add(quietOpus(1, 1, 2))
	f.Add(slices.Concat(quietOpus(1, 2, 1), quietOpus(2, 2, 1)))
	f.Add(slices.Concat(bareOgg(9, "\x80theora\x03\x02\x01"), quietOpus(1, 1, 1), oggPage(4, 3, 9, 1, []byte{4}, []byte("data"))))
	f.Add(bareOgg(3, "Speex   1.2"))
	fuzzOgg(f)
}

func FuzzOggOpus(f *testing.F) {
	seeds(f, "opus_")
	f.Add(quietOpus(1, 1, 1))
	f.Add(quietOpus(1, 2, 1))
	for _, name := range []string{"opus_dtx.opus", "opus_hybrid.opus", "opus_celt_2ms5.opus", "opus_5p1.opus", "opus_120ms.opus"} {
		f.Add(handedFile(f, "golden/"+name))
	}
	fuzzOgg(f)
}

func FuzzOggVorbis(f *testing.F) {
	seeds(f, "vorbis_")
	for _, name := range []string{"vorbis_managed.ogg", "vorbis_5p1.ogg", "vorbis_ffmpeg.ogg"} {
		f.Add(handedFile(f, "golden/"+name))
	}
	fuzzOgg(f)
}

func FuzzOggFLAC(f *testing.F) {
	seeds(f, "oggflac_")
	f.Add(oggFLACStart(8000, 1, 1).page(oggLast, 8000, flacFrame(4000, 1, 16, 5), flacFrame(4000, 1, 16, 9)).out)
	fuzzOgg(f)
}

// fuzzOgg repairs the checksums first: otherwise nearly all inputs end there.
func fuzzOgg(f *testing.F) {
	f.Helper()
	f.Fuzz(func(t *testing.T, file []byte) { examine(t, oggRepaired(file)) })
}
