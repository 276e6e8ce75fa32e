package cli

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/aviary-asr/aviary/probe"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// Values of AVIARY_FFMPEG besides a name or path.
const (
	ffmpegAuto = "auto"
	ffmpegOff  = "off"
)

// findFFmpeg gives the ffmpeg that the settings ask for; nil where they ask for none, or auto finds none that serves: then missing says why.
func findFFmpeg(ctx context.Context, setting string) (found *ffmpeg.Command, missing, err error) {
	switch setting {
	case ffmpegOff:
		return nil, fmt.Errorf("AVIARY_FFMPEG is %s", ffmpegOff), nil
	case ffmpegAuto:
		found, missing = ffmpeg.Find(ctx, "ffmpeg")
		return found, missing, nil
	}
	if found, err = ffmpeg.Find(ctx, setting); err != nil {
		return nil, nil, usageError(fmt.Errorf("AVIARY_FFMPEG: %w", err))
	}
	return found, nil, nil
}

// newProber makes the prober of the settings, and says what it cannot decode.
func newProber(ctx context.Context, s Settings, log *slog.Logger) (*probe.Prober, error) {
	found, missing, err := findFFmpeg(ctx, s.FFmpeg)
	if err != nil {
		return nil, err
	}
	if found == nil {
		log.Warn("formats that need ffmpeg are refused", "cause", missing)
	} else {
		log.Info("ffmpeg decodes what is not decoded here", "path", found.Path, "version", found.Version)
	}
	return probe.New(probe.Config{MaxDuration: s.MaxDuration, FFmpeg: found}), nil
}

// decodes is how many uploads are decoded at the same time.
func (s Settings) decodes() int {
	if s.MaxDecodes > 0 {
		return s.MaxDecodes
	}
	return runtime.GOMAXPROCS(0)
}
