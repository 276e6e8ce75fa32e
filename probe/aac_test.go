package probe

import (
	"testing"

	"github.com/aviary-asr/aviary"
)

func TestAudioSpecificConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, config string
		want         asc
		code         aviary.Code
	}{
		{"LC, 44.1 kHz, stereo", "\x12\x10", asc{44100, 2, 1024}, ""},
		{"LC, 8 kHz, mono", "\x15\x88", asc{8000, 1, 1024}, ""},
		{"LC, 48 kHz, 5.1", "\x11\xB0", asc{48000, 6, 1024}, ""},
		{"LC, 7.1", "\x11\xB8", asc{48000, 8, 1024}, ""},
		{"LC, frames of 960", "\x12\x14", asc{44100, 2, 960}, ""},
		{"LC, a rate of its own", "\x17\x80\x1F\x40\x08", asc{16000, 1, 1024}, ""},
		{"LC, behind it an extension that says no", "\x12\x10\x56\xE5\x00", asc{44100, 2, 1024}, ""},
		{"HE-AAC", "\x2B\x92\x08\x00", asc{44100, 2, 2048}, ""},
		{"HE-AAC that older decoders can read", "\x13\x90\x56\xE5\xA0", asc{44100, 2, 2048}, ""},
		{"HE-AAC at one rate", "\x2A\x12\x08\x00", asc{44100, 2, 1024}, ""},
		{"HE-AAC v2", "\xEB\x8A\x08\x00", asc{44100, 2, 2048}, ""},
		{"HE-AAC v2 that older decoders can read", "\x13\x88\x56\xE5\xA5\x48\x80", asc{44100, 2, 2048}, ""},
		{"AAC-LD", "\xBA\x10\x00", asc{44100, 2, 512}, ""},
		{"AAC-ELD", "\xF8\xE8\x40\x00", asc{44100, 2, 512}, ""},
		{"AAC-ELD, frames of 480", "\xF8\xE8\x50\x00", asc{44100, 2, 480}, ""},
		{"a program with one pair", "\x12\x00\x05\x04\x00\x00\x20\x00", asc{44100, 2, 1024}, ""},

		{"HE-AAC at a rate in between", "\x2B\x91\x08\x00", asc{}, aviary.CodeAudioBroken},
		{"a reserved rate", "\x16\x90", asc{}, aviary.CodeAudioBroken},
		{"a rate of 0", "\x17\x80\x00\x00\x08", asc{}, aviary.CodeAudioBroken},
		{"no channels", "\x12\x00", asc{}, aviary.CodeAudioBroken},
		{"a reserved layout", "\x12\x50", asc{}, aviary.CodeAudioBroken},
		{"object type 0", "\x02\x10", asc{}, aviary.CodeAudioBroken},
		{"one byte", "\x12", asc{}, aviary.CodeAudioBroken},
		{"nothing", "", asc{}, aviary.CodeAudioBroken},
		{"an extension without a rate", "\x2B\x92", asc{}, aviary.CodeAudioBroken},
		{"SSR", "\x1A\x10", asc{}, aviary.CodeMediaTypeUnsupported},
		{"xHE-AAC", "\xF9\x48\x40\x00", asc{}, aviary.CodeMediaTypeUnsupported},
		{"MP3 in MPEG-4", "\xF8\x48\x40\x00", asc{}, aviary.CodeMediaTypeUnsupported},
		{"AAC-ELD with SBR", "\xF8\xE8\x41\x00", asc{}, aviary.CodeMediaTypeUnsupported},
		{"error protection", "\xBA\x10\x40", asc{}, aviary.CodeMediaTypeUnsupported},
	} {
		got, err := parseAudioSpecificConfig([]byte(c.config))
		if aviary.CodeOf(err) != c.code || err == nil && got != c.want {
			t.Errorf("%s: %+v, %v; want %+v, %q", c.name, got, err, c.want, c.code)
		}
	}
}

// No bytes make the parser panic, or give what cannot be counted with.
func FuzzAudioSpecificConfig(f *testing.F) {
	for _, s := range []string{"\x12\x10", "\x2B\x92\x08\x00", "\x13\x90\x56\xE5\xA0", "\xF8\xE8\x40\x1F\xFF\xFF\xFF", "\x12\x00\x05\x04\x00\x00\x20\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAudioSpecificConfig(b)
		refused(t, err)
		if err == nil && (checkLimits(int64(a.rate), int64(a.channels)) != nil || a.frames < 480 || a.frames > 2048) {
			t.Fatalf("%+v", a)
		}
	})
}
