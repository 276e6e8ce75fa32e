package probe

import "github.com/aviary-asr/aviary"

// supported is what users are told of the formats: what holds what, and whether ffmpeg decodes it. TestSupported holds each line to a file.
var supported = []struct {
	name   string
	ffmpeg bool
}{
	{"WAV, RF64, BW64, RIFX, Wave64 (PCM, float, A-law, mu-law, ADPCM)", false},
	{"WAV (GSM 6.10)", true},
	{"AIFF, AIFF-C, AU, CAF (PCM, float, A-law, mu-law)", false},
	{"FLAC, Ogg FLAC", false},
	{"MP3", false},
	{"Ogg Opus, Ogg Vorbis", false},
	{"WebM, Matroska (Opus, Vorbis, FLAC, MP3, PCM)", false},
	{"WebM, Matroska (AAC, Apple Lossless, AC-3)", true},
	{"MP4, MOV (PCM, FLAC, MP3, Opus)", false},
	{"M4A, MP4, MOV, 3GP, CAF (AAC, Apple Lossless, AC-3, AMR)", true},
	{"MPEG Layer II", true},
	{"AAC (ADTS)", true},
	{"Windows Media, WavPack, AC-3, MPEG-TS, AVI, AMR, FLV", true},
}

// Formats lists what this prober knows, and what of it it can decode.
func (p *Prober) Formats() []aviary.Format {
	list := make([]aviary.Format, len(supported))
	for i, s := range supported {
		list[i] = aviary.Format{Name: s.name, Decoder: "built in", Available: true}
		if s.ffmpeg {
			list[i].Decoder, list[i].Available = "ffmpeg", p.cfg.FFmpeg != nil
		}
	}
	return list
}
