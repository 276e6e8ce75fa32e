package probe

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// What tests build Matroska files from. Sizes are true, in 8 bytes.

func mkv(id uint32, parts ...any) []byte {
	var content []byte
	for _, p := range parts {
		switch v := p.(type) {
		case int:
			content = append(content, put(be, uint64(v))...)
		default:
			content = append(content, put(be, v)...)
		}
	}
	head := put(be, id)
	for head[0] == 0 {
		head = head[1:]
	}
	return put(be, head, 1<<56|uint64(len(content)), content)
}

const (
	mkvSegment, mkvInfo, mkvScale, mkvDuration            = 0x18538067, 0x1549A966, 0x2AD7B1, 0x4489
	mkvTracks, mkvEntry, mkvNumber, mkvType, mkvCodecID   = 0x1654AE6B, 0xAE, 0xD7, 0x83, 0x86
	mkvPrivate, mkvDelay, mkvAudio, mkvRate, mkvChannels  = 0x63A2, 0x56AA, 0xE1, 0xB5, 0x9F
	mkvDepth, mkvCluster, mkvTime, mkvSimple, mkvGroup    = 0x6264, 0x1F43B675, 0xE7, 0xA3, 0xA0
	mkvBlock, mkvPadding, mkvEBML, mkvDocType, mkvVoid    = 0xA1, 0x75A2, 0x1A45DFA3, 0x4282, 0xEC
	mkvEncodings, mkvEncoding, mkvCompression, mkvAlgo    = 0x6D80, 0x6240, 0x5034, 0x4254
	mkvSettings, mkvVideoType, mkvAudioType, mkvXiphLaced = 0x4255, 1, 2, 2
)

// webm is a file with the parts of its Segment.
func webm(parts ...any) []byte {
	return append(mkv(mkvEBML, mkv(mkvDocType, "webm")), mkv(mkvSegment, parts...)...)
}

func mkvTrackOf(codec, private string, rate float64, channels int, more ...any) []byte {
	parts := []any{mkv(mkvNumber, 1), mkv(mkvType, mkvAudioType), mkv(mkvCodecID, codec), mkv(mkvAudio, mkv(mkvRate, rate), mkv(mkvChannels, channels))}
	if private != "" {
		parts = append(parts, mkv(mkvPrivate, private))
	}
	return mkv(mkvEntry, append(parts, more...)...)
}

// opusHeadOf is a mono header.
func opusHeadOf(preSkip int) string {
	return string(put(be, "OpusHead", uint8(1), uint8(1), uint8(preSkip), uint8(preSkip>>8), uint32(0x80BB0000), uint16(0), uint8(0)))
}

var opusTrack = mkvTrackOf("A_OPUS", opusHeadOf(312), 48000, 1)

// opusSilence is a packet of 20 ms.
const opusSilence, opusSilenceFrames = "\xf8\xff\xfe", 960

func mkvSimpleBlock(time int16, data ...any) []byte {
	return mkv(mkvSimple, append([]any{uint8(0x81), time, uint8(0x80)}, data...)...)
}

// opusSeconds is a Cluster for each second.
func opusSeconds(n int) []byte {
	var b []byte
	for i := range n {
		parts := []any{mkv(mkvTime, 1000*i)}
		for j := range 50 {
			parts = append(parts, mkvSimpleBlock(int16(20*j), opusSilence))
		}
		b = append(b, mkv(mkvCluster, parts...)...)
	}
	return b
}

func mkvInfoOf(scale int, duration float64) []byte {
	return mkv(mkvInfo, mkv(mkvScale, scale), mkv(mkvDuration, duration))
}

func TestWebMClaims(t *testing.T) {
	t.Parallel()
	second, video := opusSeconds(1), mkv(mkvEntry, mkv(mkvNumber, 2), mkv(mkvType, mkvVideoType))
	tracks := func(entries ...any) []byte { return mkv(mkvTracks, entries...) }
	one, two := tracks(opusTrack), tracks(video, opusTrack)
	plain := tracks(mkvTrackOf("A_OPUS", opusHeadOf(0), 48000, 1))
	padded := func(nanos ...int) []byte {
		var groups []any
		for _, n := range nanos {
			groups = append(groups, mkv(mkvGroup, mkv(mkvBlock, uint8(0x81), int16(0), uint8(0), opusSilence), mkv(mkvPadding, n)))
		}
		return mkv(mkvCluster, groups...)
	}
	const ms = 1000000
	for name, c := range map[string]struct {
		file   []byte
		code   aviary.Code
		frames int64 // heard
		warned string
	}{
		"no info":                              {webm(one, second), "", 47688, ""},
		"true":                                 {webm(mkvInfoOf(ms, 1000), one, second), "", 47688, ""},
		"Duration is not a number":             {webm(mkvInfoOf(ms, math.NaN()), one, second), "", 47688, ""},
		"Duration is infinite":                 {webm(mkvInfoOf(ms, math.Inf(1)), one, second), "", 47688, ""},
		"Duration is 0":                        {webm(mkvInfoOf(ms, 0), one, second), "", 47688, ""},
		"Duration is negative":                 {webm(mkvInfoOf(ms, -5000), one, second), "", 47688, ""},
		"Duration is less":                     {webm(mkvInfoOf(ms, 500), one, second), aviary.CodeAudioBroken, 0, ""},
		"Duration is more":                     {webm(mkvInfoOf(ms, 2000), one, second), aviary.CodeAudioBroken, 0, ""},
		"Duration is huge":                     {webm(mkvInfoOf(ms, 1e300), one, second), aviary.CodeAudioTooLong, 0, ""},
		"Duration is that of the video":        {webm(mkvInfoOf(ms, 4000), two, second), "", 47688, ""},
		"Duration of a video is an hour":       {webm(mkvInfoOf(ms, 3600000), two, second), "", 47688, ""},
		"Duration is less than with the video": {webm(mkvInfoOf(ms, 500), two, second), aviary.CodeAudioBroken, 0, ""},
		"unit of 0":                            {webm(mkvInfoOf(0, 1000), one, second), aviary.CodeAudioBroken, 0, ""},
		"unit of a minute":                     {webm(mkvInfoOf(60000*ms, 1000), one, second), aviary.CodeAudioBroken, 0, ""},
		"unit beyond all":                      {webm(mkvInfoOf(math.MaxInt64, 1000), one, second), aviary.CodeAudioBroken, 0, ""},
		"unit of a microsecond":                {webm(mkvInfoOf(1000, 3000000), one, opusSeconds(3)), "", 3*48000 - 312, "less than its audio"},
		"all blocks at once":                   {webm(one, bytes.Repeat(padded(0), 60)), "", 60*960 - 312, "less than its audio"},
		"a gap of an hour":                     {webm(one, second, mkv(mkvCluster, mkv(mkvTime, 3601000), mkvSimpleBlock(0, opusSilence))), "", 48648, "gaps"},
		"times beyond all":                     {webm(one, mkv(mkvCluster, mkv(mkvTime, math.MaxInt64), mkvSimpleBlock(1, opusSilence), mkvSimpleBlock(2, opusSilence))), "", 1920 - 312, ""},
		"end trimmed":                          {webm(plain, padded(0, 0, 5*ms)), "", 3*960 - 240, ""},
		"start trimmed":                        {webm(plain, padded(-5*ms, 0, 0)), "", 3*960 - 240, ""},
		"more trimmed than there is":           {webm(plain, padded(0, 0, math.MaxInt64)), "", 2 * 960, ""},
		"more trimmed at the start":            {webm(plain, padded(math.MinInt64, 0, 0)), "", 2 * 960, ""},
		"all trimmed":                          {webm(plain, padded(20*ms)), aviary.CodeAudioBroken, 0, ""},
		"audio hidden by trimming":             {webm(plain, padded(slices.Repeat([]int{20 * ms}, 60)...), second), aviary.CodeAudioBroken, 0, ""},
		"joined files with their trims":        {webm(plain, bytes.Repeat(padded(0, 0, 15*ms), 60)), "", 60 * (3*960 - 720), "less"},
		"delay, but the codec has its own":     {webm(tracks(mkvTrackOf("A_OPUS", opusHeadOf(312), 48000, 1, mkv(mkvDelay, 80*ms))), second), "", 47688, ""},
		"delay beyond any encoder's":           {webm(tracks(mkvTrackOf("A_OPUS", opusHeadOf(312), 48000, 1, mkv(mkvDelay, 2001*ms))), second), aviary.CodeAudioBroken, 0, ""},
		"delay beyond all":                     {webm(tracks(mkvTrackOf("A_OPUS", opusHeadOf(312), 48000, 1, mkv(mkvDelay, -1))), second), aviary.CodeAudioBroken, 0, ""},
		"several tracks":                       {webm(tracks(opusTrack, mkv(mkvEntry, mkv(mkvNumber, 2), mkv(mkvType, mkvAudioType))), second), "", 47688, "2 audio tracks"},
		"only video":                           {webm(tracks(video), second), aviary.CodeAudioNoStream, 0, ""},
		"another track's blocks":               {webm(tracks(opusTrack, video), mkv(mkvCluster, mkv(mkvSimple, uint8(0x82), int32(0), "picture"), mkvSimpleBlock(0, opusSilence))), "", 648, ""},
		"cut off":                              {webm(one, second)[:800], aviary.CodeAudioBroken, 0, ""},
		"more behind it":                       {append(webm(one, second), webm(one, second)...), aviary.CodeAudioBroken, 0, ""},
		"a piece without its start":            {second, aviary.CodeAudioBroken, 0, ""},
		"headers without audio":                {webm(one, mkv(mkvCluster, mkv(mkvTime, 0))), aviary.CodeAudioBroken, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(Config{MaxDuration: guard})
			audio, err := p.Probe(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
			if err == nil {
				err = aviary.CheckDuration("test", audio.Duration, guard)
			}
			if aviary.CodeOf(err) != c.code {
				t.Fatalf("%v, want %q", err, c.code)
			}
			pcm, err := p.Decode(t.Context(), bytes.NewReader(c.file), int64(len(c.file)), guard)
			if aviary.CodeOf(err) != c.code {
				t.Errorf("Decode: %v, want %q", err, c.code)
			}
			if c.code != "" {
				return
			}
			if audio.Duration != durationOf(c.frames, opusRate) || audio.Container != "webm" || audio.Codec != "opus" || int64(len(pcm)) != (c.frames+2)/3 {
				t.Errorf("%+v, %d samples; want %v", audio, len(pcm), durationOf(c.frames, opusRate))
			}
			if warned := strings.Join(audio.Warnings, " "); (warned == "") != (c.warned == "") || !strings.Contains(warned, c.warned) {
				t.Errorf("warnings: %q, want %q", warned, c.warned)
			}
		})
	}
}

// Hours of silence in a few bytes, with and without lies about them, are found too long by their packets alone, and cost what their bytes cost.
func TestWebMBombs(t *testing.T) {
	t.Parallel()
	lace := append([]any{uint8(0x81), int16(0), uint8(mkvXiphLaced), uint8(255)}, slices.Repeat([]any{uint8(1)}, 255)...)
	laced := mkv(mkvSimple, append(lace, strings.Repeat("\x18", 256))...) // 256 packets of 60 ms
	const day = 24*3600*1000/60/256 + 1
	cluster := mkv(mkvCluster, bytes.Repeat(laced, day))
	for name, file := range map[string][]byte{
		"no claim": webm(mkv(mkvTracks, opusTrack), cluster),
		"1 s":      webm(mkvInfoOf(1000000, 1000), mkv(mkvTracks, opusTrack), cluster),
	} {
		for _, limit := range []time.Duration{time.Second, guard} {
			p := New(Config{MaxDuration: limit})
			audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
			if err != nil || audio.Duration <= limit || audio.Duration > limit+time.Second {
				t.Errorf("%s: %v, %v; want a little more than %v", name, audio.Duration, err, limit)
			}
			if _, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), limit); aviary.CodeOf(err) != aviary.CodeAudioTooLong {
				t.Errorf("%s: Decode: %v", name, err)
			}
		}
	}
}

// A block of PCM may be large; it is counted by its size and decoded in parts.
func TestWebMPCM(t *testing.T) {
	samples := tone16(3 << 20)
	p := New(Config{})
	file := webm(mkv(mkvTracks, mkvTrackOf("A_PCM/INT/LIT", "", 48000, 2, mkv(mkvAudio, mkv(mkvRate, 48000.0), mkv(mkvChannels, 2), mkv(mkvDepth, 16)))),
		mkv(mkvCluster, mkvSimpleBlock(0, samples), mkvSimpleBlock(0, samples[:4])))
	var audio aviary.Audio
	var err error
	if n := allocates(func() { audio, err = p.Probe(t.Context(), bytes.NewReader(file), int64(len(file))) }); n > probeBytes || err != nil ||
		audio.Duration != durationOf(3<<19+1, 48000) || audio.Codec != "pcm_s16le" {
		t.Errorf("%+v, %v, %d bytes allocated", audio, err, n)
	}
	got := decodeWhole(t, p, file)
	if len(got) != 3<<20+2 || got[1] != float32(int16(le.Uint16(samples[2:])))/32768 || got[3<<20] != got[0] || got[1<<20+1] != float32(int16(le.Uint16(samples[2<<20+2:])))/32768 {
		t.Errorf("%d samples, which start with %v", len(got), got[:4])
	}
}

func TestWebMCodecs(t *testing.T) {
	t.Parallel()
	depth := func(rate float64, channels, bits int) []byte {
		return mkv(mkvAudio, mkv(mkvRate, rate), mkv(mkvChannels, channels), mkv(mkvDepth, bits))
	}
	wave := func(tag, channels, rate, align, bits int, extension string) string {
		return string(put(le, uint16(tag), uint16(channels), uint32(rate), uint32(rate*align), uint16(align), uint16(bits), uint16(len(extension)), extension))
	}
	stripped := mkv(mkvEncodings, mkv(mkvEncoding, mkv(mkvCompression, mkv(mkvAlgo, 3), mkv(mkvSettings, opusSilence[:2]))))
	mp3Frame := "\xff\xf3\x14\xc4" + strings.Repeat("\x00", 20) // MPEG-2, 8 kbit/s, 24 kHz
	for name, c := range map[string]struct {
		track  []byte
		packet string
		code   aviary.Code
		want   string // a part of the detail, or the codec's name
		rate   int
		frames int64
	}{
		"opus without header":     {mkvTrackOf("A_OPUS", "", 48000, 1), opusSilence, aviary.CodeAudioBroken, "Opus header", 0, 0},
		"opus, rate of its input": {mkvTrackOf("A_OPUS", opusHeadOf(0), 16000, 1), opusSilence, "", "opus", 48000, 960},
		"opus, empty packet":      {opusTrack, "", aviary.CodeAudioBroken, "empty", 0, 0},
		"opus, damaged packet":    {opusTrack, "\x03", aviary.CodeAudioBroken, "Opus packet", 0, 0},
		"opus, large packet":      {opusTrack, strings.Repeat("\xf8", maxOpusBytes+1), aviary.CodeAudioBroken, "65537 bytes", 0, 0},
		"opus, stripped":          {mkvTrackOf("A_OPUS", opusHeadOf(0), 48000, 1, stripped), opusSilence[2:], "", "opus", 48000, 960},
		"vorbis without header":   {mkvTrackOf("A_VORBIS", "", 48000, 1), "\x00", aviary.CodeAudioBroken, "Vorbis", 0, 0},
		"flac without header":     {mkvTrackOf("A_FLAC", "fLaC", 48000, 1), "\x00", aviary.CodeAudioBroken, "FLAC", 0, 0},
		"flac":                    {mkvTrackOf("A_FLAC", string(streamInfo(16000, 1, 16, 0, true)), 48000, 7), string(flacFrame(600, 1, 16, 5)), "", "flac", 16000, 600},
		"flac, damaged":           {mkvTrackOf("A_FLAC", string(streamInfo(16000, 1, 16, 0, true)), 16000, 1), string(flacFrame(600, 1, 16, 5)[:12]), aviary.CodeAudioBroken, "FLAC", 0, 0},
		"flac, another rate":      {mkvTrackOf("A_FLAC", string(streamInfo(16000, 1, 16, 0, true)), 16000, 1), string(rawFrame(600, 4, 0, 16, 5)), aviary.CodeAudioBroken, "FLAC", 0, 0},
		"mp3":                     {mkvTrackOf("A_MPEG/L3", "", 8000, 1), mp3Frame, "", "mp3", 24000, 576},
		"mp3, not":                {mkvTrackOf("A_MPEG/L3", "", 8000, 1), "not a frame", aviary.CodeAudioBroken, "Layer 3", 0, 0},
		"mp3, cut":                {mkvTrackOf("A_MPEG/L3", "", 8000, 1), mp3Frame[:20], aviary.CodeAudioBroken, "ends within", 0, 0},
		"layer I":                 {mkvTrackOf("A_MPEG/L1", "", 8000, 1), "x", aviary.CodeMediaTypeUnsupported, `"A_MPEG/L1"`, 0, 0},
		"DTS":                     {mkvTrackOf("A_DTS", "", 48000, 1), "x", aviary.CodeMediaTypeUnsupported, `"A_DTS"`, 0, 0},
		"no codec":                {mkvTrackOf("", "", 48000, 1), "x", aviary.CodeMediaTypeUnsupported, `""`, 0, 0},
		"text as codec":           {mkvTrackOf("A_OPUSX", opusHeadOf(0), 48000, 1), "x", aviary.CodeMediaTypeUnsupported, `"A_OPUSX"`, 0, 0},
		"aac":                     {mkvTrackOf("A_AAC", "\x11\x90", 8000, 6), "x", aviary.CodeMediaTypeUnsupported, "AAC", 0, 0}, // needs ffmpeg
		"aac without setup":       {mkvTrackOf("A_AAC/MPEG4/LC", "", 44100, 2), "x", aviary.CodeMediaTypeUnsupported, "AAC", 0, 0},
		"aac without any":         {mkvTrackOf("A_AAC", "", 44099, 2), "x", aviary.CodeAudioBroken, "no configuration", 0, 0},
		"aac, damaged setup":      {mkvTrackOf("A_AAC", "\xff", 44100, 2), "x", aviary.CodeAudioBroken, "AAC", 0, 0},
		"alac without setup":      {mkvTrackOf("A_ALAC", "short", 44100, 2), "x", aviary.CodeAudioBroken, "Apple Lossless", 0, 0},
		"alac of no frames":       {mkvTrackOf("A_ALAC", strings.Repeat("\x00", 24), 44100, 2), "x", aviary.CodeAudioBroken, "0 frames", 0, 0},
		"ac3, not":                {mkvTrackOf("A_AC3", "", 48000, 2), "not a frame", aviary.CodeAudioBroken, "AC-3", 0, 0},
		"pcm of 16 bits":          {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(8000, 2, 16)), "\x00\x40\x00\xc0", "", "pcm_s16le", 8000, 1},
		"pcm of 8 bits":           {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(8000, 1, 8)), "\x80\xc0", "", "pcm_u8", 8000, 2},
		"pcm, big":                {mkvTrackOf("A_PCM/INT/BIG", "", 0, 0, depth(8000, 1, 24)), "\x40\x00\x00", "", "pcm_s24be", 8000, 1},
		"pcm, float":              {mkvTrackOf("A_PCM/FLOAT/IEEE", "", 0, 0, depth(8000, 1, 64)), "\x00\x00\x00\x00\x00\x00\xe0\x3f", "", "pcm_f64le", 8000, 1},
		"pcm of no bits":          {mkvTrackOf("A_PCM/INT/LIT", "", 8000, 1), "xx", aviary.CodeAudioBroken, "0 bits", 0, 0},
		"pcm of 12 bits":          {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(8000, 1, 12)), "xx", aviary.CodeAudioBroken, "12 bits", 0, 0},
		"pcm of 2^31 bits":        {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(8000, 1, math.MaxInt32)), "xx", aviary.CodeAudioBroken, "bits", 0, 0},
		"pcm, float of 16 bits":   {mkvTrackOf("A_PCM/FLOAT/IEEE", "", 0, 0, depth(8000, 1, 16)), "xx", aviary.CodeAudioBroken, "16 bits", 0, 0},
		"pcm, odd packet":         {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(8000, 2, 16)), "xxxxxx", aviary.CodeAudioBroken, "6 bytes", 0, 0},
		"pcm at 0 Hz":             {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(0, 2, 16)), "xxxx", aviary.CodeAudioBroken, "sample rate", 0, 0},
		"pcm at NaN Hz":           {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(math.NaN(), 2, 16)), "xxxx", aviary.CodeAudioBroken, "sample rate", 0, 0},
		"pcm at 1e30 Hz":          {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(1e30, 2, 16)), "xxxx", aviary.CodeAudioBroken, "sample rate", 0, 0},
		"pcm at half a Hz":        {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(8000.5, 2, 16)), "xxxx", aviary.CodeAudioBroken, "8000.5 Hz", 0, 0},
		"pcm of 0 channels":       {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(8000, 0, 16)), "xxxx", aviary.CodeAudioBroken, "0 channels", 0, 0},
		"pcm of all channels":     {mkvTrackOf("A_PCM/INT/LIT", "", 0, 0, depth(8000, -1, 16)), "xxxx", aviary.CodeAudioBroken, "channels", 0, 0},
		"acm, A-law":              {mkvTrackOf("A_MS/ACM", wave(tagALaw, 1, 8000, 1, 8, ""), 1, 1), "\xd5\x55", "", "pcm_alaw", 8000, 2},
		"acm, adpcm":              {mkvTrackOf("A_MS/ACM", wave(tagIMA, 1, 8000, 36, 4, "\x41\x00"), 1, 1), strings.Repeat("\x00", 72), "", "adpcm_ima_wav", 8000, 130},
		"acm, adpcm, odd":         {mkvTrackOf("A_MS/ACM", wave(tagIMA, 1, 8000, 36, 4, "\x41\x00"), 1, 1), strings.Repeat("\x00", 73), aviary.CodeAudioBroken, "73 bytes", 0, 0},
		"acm, mp3":                {mkvTrackOf("A_MS/ACM", wave(tagMP3, 1, 8000, 1, 0, ""), 1, 1), mp3Frame, "", "mp3", 24000, 576},
		"acm, aac":                {mkvTrackOf("A_MS/ACM", wave(0xFF, 2, 8000, 1, 0, "\x11\x90"), 1, 1), "x", aviary.CodeMediaTypeUnsupported, "AAC", 0, 0},
		"acm, unknown":            {mkvTrackOf("A_MS/ACM", wave(0x7777, 2, 8000, 1, 0, ""), 1, 1), "x", aviary.CodeMediaTypeUnsupported, "0x7777", 0, 0},
		"acm, cut":                {mkvTrackOf("A_MS/ACM", "\x01\x00", 1, 1), "x", aviary.CodeAudioBroken, "2 bytes", 0, 0},
		"acm, none":               {mkvTrackOf("A_MS/ACM", "", 1, 1), "x", aviary.CodeAudioBroken, "0 bytes", 0, 0},
	} {
		file := webm(mkv(mkvTracks, c.track), mkv(mkvCluster, mkvSimpleBlock(0, c.packet)))
		p := New(Config{})
		audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		if aviary.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q, %q", name, err, c.code, c.want)
			continue
		}
		if err == nil && (audio.Codec != c.want || audio.SampleRate != c.rate || audio.Duration != durationOf(c.frames, c.rate)) {
			t.Errorf("%s: %+v", name, audio)
		}
		if _, err := p.Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0); aviary.CodeOf(err) != c.code {
			t.Errorf("%s: Decode: %v, want %q", name, err, c.code)
		}
	}
}

// Golden files by ffmpeg and mkvmerge (tools/probe-golden/make.sh); how many frames they hold is what ffmpeg 5.1 decodes from them.
var goldenWebM = []struct {
	name, container, codec string
	rate, channels         int
	frames                 int64
	ffmpeg                 bool // needs it
}{
	{"mkv_opus.webm", "webm", "opus", 48000, 1, 12000, false},
	{"mkv_opus_live.webm", "webm", "opus", 48000, 1, 12000, false},
	{"mkv_opus_clusters.webm", "webm", "opus", 48000, 1, 12000, false},
	{"mkv_opus_5p1.mkv", "matroska", "opus", 48000, 6, 12000, true},
	{"mkv_vorbis.webm", "webm", "vorbis", 16000, 1, 4096, false},
	{"mkv_flac24.mkv", "matroska", "flac", 16000, 1, 4000, false},
	{"mkv_mp3.mkv", "matroska", "mp3", 16000, 1, 5105, false},
	{"mkv_mp3_mkvmerge.mkv", "matroska", "mp3", 16000, 1, 5105, false},
	{"mkv_mp2.mkv", "matroska", "mp2", 16000, 1, 4608, true},
	{"mkv_aac.mkv", "matroska", "aac", 16000, 1, 5120, true},
	{"mkv_aac_5p1.mkv", "matroska", "aac", 48000, 6, 13312, true},
	{"mkv_aac_video.mkv", "matroska", "aac", 16000, 1, 5120, true},
	{"mkv_alac.mkv", "matroska", "alac", 16000, 1, 4000, true},
	{"mkv_ac3.mkv", "matroska", "ac3", 48000, 1, 12288, true},
	{"mkv_eac3_5p1.mkv", "matroska", "eac3", 48000, 6, 12288, true},
	{"mkv_gsm.mkv", "matroska", "gsm_ms", 8000, 1, 2240, true},
	{"mkv_adpcm.mkv", "matroska", "adpcm_ms", 16000, 1, 4000, false},
	{"mkv_pcm24be.mka", "matroska", "pcm_s24be", 8000, 1, 2000, false},
	{"mkv_pcmf32.mka", "matroska", "pcm_f32le", 8000, 1, 2000, false},
	{"mkv_alaw.mka", "matroska", "pcm_alaw", 8000, 1, 2000, false},
	{"ac3_44k1.ac3", "ac3", "ac3", 44100, 2, 12288, true},
}

func TestGoldenWebM(t *testing.T) {
	t.Parallel()
	p := New(Config{MaxDuration: guard})
	for _, c := range goldenWebM {
		file := handedFile(t, "golden/"+c.name)
		audio, err := p.Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		if c.ffmpeg {
			if aviary.CodeOf(err) != aviary.CodeMediaTypeUnsupported || !strings.Contains(err.Error(), "this server has none") {
				t.Errorf("%s without ffmpeg: %v", c.name, err)
			}
			continue
		}
		if err != nil || audio.Duration != durationOf(c.frames, c.rate) || audio.Codec != c.codec || audio.Container != c.container || audio.SampleRate != c.rate ||
			audio.Channels != c.channels || len(audio.Warnings) > 0 {
			t.Errorf("%s: %+v, %v; want %+v", c.name, audio, err, c)
			continue
		}
		if got := decodeWhole(t, p, file); int64(len(got)) != c.frames*int64(c.channels) {
			t.Errorf("%s: %d samples, want %d", c.name, len(got), c.frames)
		}
	}
	zlib := handedFile(t, "golden/mkv_ac3_zlib.mkv")
	if _, err := p.Probe(t.Context(), bytes.NewReader(zlib), int64(len(zlib))); aviary.CodeOf(err) != aviary.CodeMediaTypeUnsupported || !strings.Contains(err.Error(), "compressed") {
		t.Errorf("compressed packets: %v", err)
	}
}

func TestWebMReaderFails(t *testing.T) {
	t.Parallel()
	onFire := errors.New("disk on fire")
	for _, name := range []string{"webm_vorbis.webm", "mkv_flac.mkv", "mkv_pcm.mka", "golden/mkv_mp3.mkv", "golden/ac3_44k1.ac3"} {
		file := handedFile(t, name)
		p := New(Config{FFmpeg: noFFmpeg})
		for _, good := range []int64{0, 100, 4096, int64(len(file)) - 1} {
			if good >= int64(len(file)) {
				continue
			}
			_, err := p.Probe(t.Context(), failingReader{bytes.NewReader(file), good, onFire}, int64(len(file)))
			if aviary.CodeOf(err) != aviary.CodeInternal || !errors.Is(err, onFire) {
				t.Errorf("%s fails after %d bytes: %v", name, good, err)
			}
		}
	}
}

func FuzzWebM(f *testing.F) {
	seeds(f, "webm_", "mkv_")
	for _, c := range goldenWebM {
		f.Add(handedFile(f, "golden/"+c.name))
	}
	f.Add(webm(mkvInfoOf(1000000, 1000), mkv(mkvTracks, opusTrack), opusSeconds(1)))
	f.Add(webm(mkv(mkvTracks, mkvTrackOf("A_FLAC", string(streamInfo(16000, 1, 16, 0, true)), 16000, 1)), mkv(mkvCluster, mkvSimpleBlock(0, flacFrame(600, 1, 16, 5)))))
	f.Fuzz(func(t *testing.T, file []byte) {
		if file = bytes.Clone(file); len(file) >= 4 && file[0] != clusterMagic[0] {
			copy(file, webmMagic)
		}
		examine(t, file)
	})
}
