package api

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/aviary-asr/aviary"
)

// vttEscape is what cue text must escape (W3C WebVTT, 4.2.2): with > escaped, the arrow cannot occur.
var vttEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// renderVTT writes WebVTT.
func renderVTT(_ string, t aviary.Transcript) ([]byte, error) {
	cues, err := renderCaptions(t, func(b *bytes.Buffer, number int, c caption) {
		text := vttEscape.Replace(strings.Join(c.lines, "\n"))
		fmt.Fprintf(b, "\n%d\n%s --> %s\n%s\n", number, clock(c.start, '.'), clock(c.end, '.'), text)
	})
	return append([]byte("WEBVTT\n"), cues...), err
}
