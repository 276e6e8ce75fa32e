package probe

import (
	"context"
	"io"

	"github.com/aviary-asr/aviary/probe/resample"
)

// formats are the formats that can be decoded. The first whose sniffer knows the bytes parses them.
var formats = []format{
	{"WAV", sniffWAV, openWAV},
	{"Wave64", sniffW64, openW64},
	{"FLAC", sniffFLAC, openFLAC},
	{"AIFF", sniffAIFF, openAIFF},
	{"AU", sniffAU, openAU},
	{"CAF", sniffCAF, openCAF},
	{"MP4", sniffMP4, openMP4},
	{"Ogg", sniffOgg, openOgg},
	{"WebM", sniffWebM, openWebM},
	{"WebM piece", sniffWebMPiece, openWebMPiece},
	{"Windows Media", sniffASF, pipedASF.open},
	{"WavPack", sniffWavPack, pipedWV.open},
	{"AVI", sniffAVI, pipedAVI.open},
	{"AMR", sniffAMR, pipedAMR.open},
	{"FLV", sniffFLV, pipedFLV.open},
	{"MPEG-TS", sniffTS, pipedTS.open},
	{"AC-3", sniffAC3, openAC3},
	{"Enhanced AC-3", sniffEAC3, pipedEAC3.open},
	{"MP3", sniffMP3, openMP3}, // the last ones go by the weakest signs
	{"ADTS", sniffADTS, openADTS},
}

// format is one container.
type format struct {
	name  string
	sniff func(head []byte) bool // by the first bytes, up to headBytes of them
	open  func(ctx context.Context, s *source) (track, error)
}

// Limits of what is taken for audio. Beyond them lies no recording of speech, but a good deal of nonsense.
const (
	minRate     = resample.MinRate // Hz
	maxRate     = resample.MaxRate // Hz
	maxChannels = 64
	// maxSampleRate bounds samples per second in all channels, since a small file can hold an hour of them: 8 channels at 192 kHz, 32 at 48 kHz.
	maxSampleRate = 8 * 192000
)

// checkLimits refuses absurd rates and channel counts before anything is computed with them.
func checkLimits(rate, channels int64) error {
	switch {
	case rate < minRate || rate > maxRate:
		return broken("The header gives a sample rate of %d Hz, which is not within %d to %d Hz.", rate, minRate, maxRate)
	case channels < 1 || channels > maxChannels:
		return broken("The header gives %d channels, which is not within 1 to %d.", channels, maxChannels)
	case rate*channels > maxSampleRate:
		return broken("The header gives %d channels of %d Hz, which no recording of speech has.", channels, rate)
	}
	return nil
}

// open tells what the bytes are and parses their header.
func (p *Prober) open(ctx context.Context, r io.ReaderAt, size int64) (track, error) {
	return p.openAs(ctx, r, size, false)
}

func (p *Prober) openAs(ctx context.Context, r io.ReaderAt, size int64, peeking bool) (track, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := newSource(r, size)
	if err != nil {
		return nil, err
	}
	s.ffmpeg, s.peeking = p.cfg.FFmpeg, peeking
	if s.size == 0 {
		return nil, broken("The file is empty.")
	}
	if s, err = skipID3(s); err != nil {
		return nil, err
	}
	for _, f := range formats {
		if f.sniff(s.head) {
			return f.open(ctx, s)
		}
	}
	return nil, foreign(s)
}

// skipID3 skips ID3v2 tags, which may stand before FLAC and MP3 (https://id3.org/id3v2.4.0-structure, section 3.1).
func skipID3(s *source) (*source, error) {
	for range 8 { // more than one occurs, many do not
		h := s.head
		if len(h) < 10 || string(h[:3]) != "ID3" || (h[6]|h[7]|h[8]|h[9])&0x80 != 0 {
			return s, nil
		}
		n := 10 + (int64(h[6])<<21 | int64(h[7])<<14 | int64(h[8])<<7 | int64(h[9]))
		if h[5]&0x10 != 0 {
			n += 10 // a footer
		}
		if n > s.size {
			return nil, broken("The ID3 tag claims %d bytes, but the file has %d.", n, s.size)
		}
		if n == s.size {
			return nil, broken("The file holds an ID3 tag and nothing else.")
		}
		var err error
		if s, err = s.from(n); err != nil {
			return nil, err
		}
	}
	return nil, broken("The file starts with too many ID3 tags.")
}
