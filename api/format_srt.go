package api

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/aviary-asr/aviary"
)

// renderSRT writes SubRip. The format has no escapes; only the arrow, by which readers find the times, must not occur in a text.
func renderSRT(_ string, t aviary.Transcript) ([]byte, error) {
	return renderCaptions(t, func(b *bytes.Buffer, number int, c caption) {
		text := strings.ReplaceAll(strings.Join(c.lines, "\n"), "-->", "->")
		fmt.Fprintf(b, "%d\n%s --> %s\n%s\n\n", number, clock(c.start, ','), clock(c.end, ','), text)
	})
}

// clock writes milliseconds as HH:MM:SS and, after the mark, their rest.
func clock(ms int64, mark rune) string {
	s := ms / 1000
	return fmt.Sprintf("%02d:%02d:%02d%c%03d", s/3600, s/60%60, s%60, mark, ms%1000)
}
