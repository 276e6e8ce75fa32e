package probe

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// What users are told is true: each line has files that are decoded without ffmpeg, or refused with a hint at it.
func TestSupported(t *testing.T) {
	t.Parallel()
	files := map[string][]string{
		"WAV, RF64, BW64, RIFX, Wave64 (PCM, float, A-law, mu-law, ADPCM)": {"rf64_16k.wav", "wav_rifx_big_endian.wav", "wav_48k_mono_f32.wav", "wav_8k_alaw.wav", "wav_22050_ms_adpcm.wav"},
		"WAV (GSM 6.10)": {"wav_8k_gsm610.wav"},
		"AIFF, AIFF-C, AU, CAF (PCM, float, A-law, mu-law)": {"aifc_mulaw.aifc", "caf_unknown_size.caf"},
		"FLAC, Ogg FLAC":       {"flac_11025_mono.flac", "oggflac_16k.oga"},
		"MP3":                  {"mp3_cbr_44k1_stereo.mp3", "mp3_cbr_8k_mono.mp3"},
		"Ogg Opus, Ogg Vorbis": {"opus_48k_stereo.opus", "vorbis_44k1_stereo.ogg"},
		"WebM, Matroska (Opus, Vorbis, FLAC, MP3, PCM)": {"webm_opus_with_duration.webm", "webm_vorbis.webm", "mkv_flac.mkv", "mkv_pcm.mka"},
		"WebM, Matroska (AAC, Apple Lossless, AC-3)":    {"golden/mkv_aac.mkv", "golden/mkv_alac.mkv", "golden/mkv_ac3.mkv"},
		"MPEG Layer II":                   {"golden/layer2.mp2"},
		"MP4, MOV (PCM, FLAC, MP3, Opus)": {"mov_pcm.mov", "golden/mp4_flac.mp4", "golden/mp4_mp3.mp4", "golden/mp4_opus.mp4"},
		"M4A, MP4, MOV, 3GP, CAF (AAC, Apple Lossless, AC-3, AMR)": {"m4a_aac_moov_end.m4a", "m4a_alac.m4a", "3gp_aac.3gp"},
		"AAC (ADTS)": {"aac_adts_24k.aac"},
		"Windows Media, WavPack, AC-3, MPEG-TS, AVI, AMR, FLV": {"wma.wma", "wavpack.wv", "ac3.ac3", "mpegts_aac.ts", "golden/piped_video.avi", "golden/piped_aac.flv"},
	}
	p := New(Config{MaxDuration: time.Hour})
	for _, f := range p.Formats() {
		names, listed := files[f.Name]
		if !listed {
			t.Errorf("%q has no line in this test", f.Name)
		}
		for _, name := range names {
			b := handedFile(t, name)
			_, err := p.Normalize(t.Context(), bytes.NewReader(b), int64(len(b)), aviary.Normalizing{Limit: time.Hour}, nowhere{})
			problem := aviary.ProblemOf(err)
			switch {
			case f.Available && err != nil:
				t.Errorf("%s: %v, but %q is decoded here", name, err, f.Name)
			case !f.Available && (err == nil || problem.Code != aviary.CodeMediaTypeUnsupported || !strings.Contains(problem.Detail, "ffmpeg") || problem.Hint == ""):
				t.Errorf("%s: %v, but %q needs ffmpeg", name, err, f.Name)
			}
		}
	}
}
