package probe

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// au is a file with a header of six numbers and what follows.
func au(at, size, encoding, rate, channels uint32, rest ...[]byte) []byte {
	return put(be, ".snd", at, size, encoding, rate, channels, bytes.Join(rest, nil))
}

func TestAUFiles(t *testing.T) {
	t.Parallel()
	const s, unknownSize = time.Second, uint32(math.MaxUint32)
	second := make([]byte, 32000)
	const brokenCode, unsupportedCode = aviary.CodeAudioBroken, aviary.CodeMediaTypeUnsupported
	checkFiles(t, []fileCase{
		{"plain", au(24, 32000, 3, 16000, 1, second), s, "", ""},
		{"an annotation", au(36, 32000, 3, 16000, 1, []byte("no samples\x00\x00"), second), s, "", ""},
		{"mu-law", au(24, 32000, 1, 16000, 2, second), s, "", ""},
		{"A-law", au(24, 32000, 27, 32000, 1, second), s, "", ""},
		{"unknown size", au(24, unknownSize, 3, 16000, 1, second), s, "", ""},
		{"a recorder that died", au(24, 0, 3, 16000, 1, second), s, "", ""},
		{"a rest of a frame", au(24, unknownSize, 3, 16000, 1, second, []byte{1}), s, "", ""},
		{"a little more than claimed", au(24, 31998, 3, 16000, 1, second), s - 62500*time.Nanosecond, "", ""},

		{"claims 2 s", au(24, 64000, 3, 16000, 1, second), 0, brokenCode, "claims 2.000 s"},
		{"claims 0.5 s", au(24, 16000, 3, 16000, 1, second), 0, brokenCode, "claims 0.500 s"},
		{"claims 4 GB", au(24, unknownSize-1, 3, 16000, 1, second), 0, brokenCode, "cut off"},
		{"cut in the header", au(24, 32000, 3, 16000, 1)[:23], 0, brokenCode, "within its header"},
		{"no samples", au(24, 0, 3, 16000, 1), 0, brokenCode, "no audio"},
		{"no samples, unknown size", au(24, unknownSize, 3, 16000, 1), 0, brokenCode, "no audio"},
		{"samples in the header", au(23, 32000, 3, 16000, 1, second), 0, brokenCode, "start at byte 23"},
		{"samples behind the file", au(32025, 32000, 3, 16000, 1, second), 0, brokenCode, "start at byte 32025"},
		{"samples at 4 GB", au(unknownSize, 32000, 3, 16000, 1, second), 0, brokenCode, "start at byte 4294967295"},
		{"rate 0", au(24, 32000, 3, 0, 1, second), 0, brokenCode, "0 Hz"},
		{"0 channels", au(24, 32000, 3, 16000, 0, second), 0, brokenCode, "0 channels"},
		{"2^32-1 channels", au(24, 32000, 3, 16000, unknownSize, second), 0, brokenCode, "4294967295 channels"},
		{"G.721", au(24, 32000, 23, 16000, 1, second), 0, unsupportedCode, "G.721"},
		{"encoding 99", au(24, 32000, 99, 16000, 1, second), 0, unsupportedCode, "number 99"},
	})
}

func FuzzAU(f *testing.F) {
	addGolden(f, "pcm_mulaw.au", "pcm_s24be.au")
	f.Add(au(24, 1600, 3, 8000, 1, make([]byte, 1600)))
	f.Add(au(32, math.MaxUint32, 7, 8000, 2, make([]byte, 1600)))
	f.Add(au(24, 0, 27, 8000, 1, make([]byte, 1600)))
	f.Fuzz(func(t *testing.T, file []byte) {
		file = bytes.Clone(file)
		copy(file, ".snd")
		examine(t, file)
	})
}
