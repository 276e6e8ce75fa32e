package probe

import (
	"errors"
	"fmt"

	"github.com/aviary-asr/aviary"
)

// Parsers say what is wrong with a file by these; report adds the operation.

func broken(format string, args ...any) error {
	e := aviary.Errorf(aviary.CodeAudioBroken, "", format, args...)
	e.Hint = "If the file plays elsewhere, send it whole once more, or try what ffmpeg makes of it: ffmpeg -i INPUT -ac 1 -ar 16000 OUTPUT.flac"
	return e
}

func unsupported(format string, args ...any) error {
	e := aviary.Errorf(aviary.CodeMediaTypeUnsupported, "", format, args...)
	e.Hint = "Send WAV, FLAC, MP3, Ogg or M4A. Most other recordings can be converted: ffmpeg -i INPUT -ac 1 -ar 16000 OUTPUT.flac"
	return e
}

// needsFFmpeg refuses what only ffmpeg decodes, on a server that has none.
func needsFFmpeg(what string) error {
	e := aviary.Errorf(aviary.CodeMediaTypeUnsupported, "", "The file holds %s, which only ffmpeg decodes, and this server has none.", what)
	e.Hint = "Send FLAC or WAV: ffmpeg -i INPUT -ac 1 -ar 16000 OUTPUT.flac. The operator can install ffmpeg, or allow it with AVIARY_FFMPEG."
	return e
}

// report names the operation in an error. What is not about the file (the reader's failures, a canceled context) stays what it is.
func report(op string, err error) error {
	var e *aviary.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		e.Op = op
		return err
	}
	return fmt.Errorf("%s: %w", op, err)
}
