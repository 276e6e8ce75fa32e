// Package probetest reads the table of handed files (probe/testdata/cases.tsv), so that the library, the API and the command line are held to the
// same answers. It is for tests alone.
package probetest

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// Case is one file: what it truly holds, and the answers that are acceptable.
type Case struct {
	Name, Format string
	Class        string    // ok, too_long, unprobeable or hostile
	Truth        float64   // seconds; NaN where nothing can be decoded
	Answer       string    // the best one: a word of Word
	Also         []string  // others
	Accept       []float64 // seconds that may be accepted; none: never
}

// within is how far an accepted duration may be from an acceptable one, in seconds.
const within = 0.05

// words maps codes to the words of the table.
var words = map[aviary.Code]string{
	"":                              "accept",
	aviary.CodeAudioTooLong:         "413_too_long",
	aviary.CodeDurationUnknown:      "413_unknown",
	aviary.CodeAudioBroken:          "400_broken",
	aviary.CodeMediaTypeUnsupported: "415_not_audio",
	aviary.CodeAudioNoStream:        "422_no_stream",
}

// Word is a code as the table calls it; empty for a code that no file should get.
func Word(c aviary.Code) string { return words[c] }

// Cases reads the table in dir.
func Cases(t testing.TB, dir string) []Case {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "cases.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	table := csv.NewReader(file)
	table.Comma, table.LazyQuotes = '\t', true
	rows, err := table.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var all []Case
	for _, row := range rows[1:] {
		cell := func(column string) string { return row[slices.Index(rows[0], column)] }
		c := Case{Name: cell("name"), Format: cell("format"), Class: cell("class"), Truth: math.NaN(), Answer: cell("answer"), Also: strings.Split(cell("also_ok"), ",")}
		if v, err := strconv.ParseFloat(cell("true_duration_s"), 64); err == nil {
			c.Truth = v
		}
		for _, s := range strings.Split(cell("accept_s"), ";") {
			if v, err := strconv.ParseFloat(s, 64); err == nil {
				c.Accept = append(c.Accept, v)
			}
		}
		all = append(all, c)
	}
	return all
}

// Judge says what is wrong with an answer: a refusal with a code, or an acceptance (an empty code) as so long. nil is an acceptable answer.
func (c Case) Judge(code aviary.Code, d time.Duration) error {
	word := Word(code)
	if code == "" {
		if !slices.ContainsFunc(c.Accept, func(s float64) bool { return math.Abs(d.Seconds()-s) <= within }) {
			return fmt.Errorf("%s: accepted as %v; want %s or, as an accepted length, one of %v", c.Name, d, c.Answer, c.Accept)
		}
		return nil
	}
	if word != c.Answer && !slices.Contains(c.Also, word) && (word != "422_no_stream" || c.Answer != "415_not_audio") {
		return fmt.Errorf("%s: %s, want %s or one of %v, or accepted as one of %v", c.Name, code, c.Answer, c.Also, c.Accept)
	}
	return nil
}
