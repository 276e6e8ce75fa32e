package api

import (
	"strings"

	"github.com/aviary-asr/aviary"
)

// renderText writes the text and the end of its line. Silence gives no byte.
func renderText(_ string, t aviary.Transcript) ([]byte, error) {
	text := strings.TrimSpace(t.Text)
	if text == "" {
		return nil, nil
	}
	return []byte(text + "\n"), nil
}
