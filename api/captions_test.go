package api

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// spoken makes a segment of a text: each word lasts 0.3 s, and pauses are marked as "|0.5" for half a second.
func spoken(t *aviary.Transcript, at float64, text string) float64 {
	s := aviary.Segment{ID: len(t.Segments), Start: at}
	for _, field := range strings.Fields(text) {
		var gap float64
		if _, err := fmt.Sscanf(field, "|%g", &gap); err == nil {
			at += gap
			continue
		}
		s.Words = append(s.Words, aviary.Word{Word: field, Start: at, End: at + .3})
		at += .32
	}
	s.End = at
	words := make([]string, len(s.Words))
	for i, w := range s.Words {
		words[i] = w.Word
	}
	s.Text = strings.Join(words, " ")
	t.Text = strings.TrimSpace(t.Text + " " + s.Text)
	t.Segments = append(t.Segments, s)
	return at
}

// TestGolden holds each format to a committed file. After a wanted change: go test ./api -run Golden -update.
func TestGolden(t *testing.T) {
	t.Parallel()
	var talk aviary.Transcript
	at := spoken(&talk, .5, "Good morning, and welcome to this rather long first sentence, which does not fit in two lines of a caption, so it has to be parted well.")
	at = spoken(&talk, at+.2, "Yes.")
	at = spoken(&talk, at, "Zoë said: “Naïve cafés <i>sell</i> R&D --> here”; élan, she thought, |1.5 after a pause came back.")
	at = spoken(&talk, at+2, "one two three |0.4 four five six seven |0.4 eight nine zero one two three four five six seven eight nine zero one two")
	at = spoken(&talk, at, "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft is one word.")
	spoken(&talk, at+3600, "An hour later.")
	talk.DurationSeconds = 3600 + at + 1.0006
	talk.Language, talk.Warnings = "en", []string{"made by a test"}
	talk.Engine = aviary.Engine{Model: "test", ModelSHA256: "00", DType: "float32", Device: "cpu", Software: "aviary",
		Attention: aviary.Attention{Mode: "local", Context: []int{128, 128}, Reason: "300 s or longer"}}
	for _, f := range formats {
		got, err := f.render("job_1", talk)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		file := filepath.Join("testdata", "talk"+f.extension)
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from %s; got:\n%s", f.name, file, got)
		}
	}
}

// checkCaptions holds cues to the rules.
func checkCaptions(t *testing.T, tr aviary.Transcript) {
	t.Helper()
	cues := captions(tr)
	end := int64(0)
	var text strings.Builder
	for i, c := range cues {
		switch {
		case c.start < end:
			t.Fatalf("cue %d begins at %d, before %d", i, c.start, end)
		case c.end <= c.start:
			t.Fatalf("cue %d lasts from %d to %d", i, c.start, c.end)
		case c.end-c.start > longestCue:
			t.Fatalf("cue %d lasts %d ms", i, c.end-c.start)
		case float64(c.end) > tr.DurationSeconds*1000+1e-5:
			t.Fatalf("cue %d ends at %d ms; the audio lasts %v s", i, c.end, tr.DurationSeconds)
		case len(c.lines) < 1 || len(c.lines) > cueLines:
			t.Fatalf("cue %d has %d lines", i, len(c.lines))
		}
		end = c.end
		for _, line := range c.lines {
			if n := utf8.RuneCountInString(line); n == 0 || n > lineRunes || strings.TrimSpace(line) != line || strings.ContainsAny(line, "\r\n\x00") || !utf8.ValidString(line) {
				t.Fatalf("cue %d has the line %q", i, line)
			}
			text.WriteString(line)
		}
	}
	// Unless there was no room at all, all is shown, in order.
	limit := milliseconds(tr.DurationSeconds, math.MaxInt32)
	var want strings.Builder
	for _, p := range cut(tr, limit) {
		want.WriteString(p.text)
	}
	squeeze := strings.NewReplacer(" ", "").Replace
	if got, want := squeeze(text.String()), squeeze(want.String()); int64(len(cues)) < limit && got != want {
		t.Fatalf("the cues say\n%q, not\n%q", got, want)
	}
}

// randomTranscript makes words as no engine should: unsorted, of no or endless length, not finite, in any script.
func randomTranscript(r *rand.Rand) aviary.Transcript {
	alphabet := []rune("ab.,?!;:— \t\n\x00\u0301é日本語🎤<>&-\"”)\ufffd\u2028")
	number := func() float64 {
		switch r.IntN(12) {
		case 0:
			return math.NaN()
		case 1:
			return math.Inf(r.IntN(3) - 1)
		case 2:
			return -r.Float64()
		case 3:
			return 1e300
		default:
			return r.Float64() * 100
		}
	}
	t := aviary.Transcript{DurationSeconds: r.Float64() * 120}
	switch r.IntN(8) {
	case 0:
		t.DurationSeconds = r.Float64() * .02
	case 1:
		t.DurationSeconds = 0
	}
	clock := 0.0
	sorted := r.IntN(2) == 0
	for range r.IntN(6) {
		var s aviary.Segment
		s.Start, s.End = number(), number()
		for range r.IntN(60) {
			n := r.IntN(12)
			if r.IntN(20) == 0 {
				n = r.IntN(300)
			}
			word := make([]rune, n)
			for i := range word {
				word[i] = alphabet[r.IntN(len(alphabet))]
				if r.IntN(2) == 0 {
					word[i] = 'x'
				}
			}
			w := aviary.Word{Word: string(word), Start: number(), End: number()}
			if sorted {
				w.Start = clock
				clock += r.ExpFloat64() * .4
				w.End = clock
				clock += r.ExpFloat64() * .2
			}
			s.Words = append(s.Words, w)
		}
		if r.IntN(4) == 0 {
			s.Words, s.Text = nil, strings.Repeat("no words here, only text. ", r.IntN(20))
		}
		t.Segments = append(t.Segments, s)
	}
	return t
}

func TestCaptionRulesAlwaysHold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		tr := randomTranscript(rand.New(rand.NewPCG(seed, 1)))
		checkCaptions(t, tr)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzCaptions(f *testing.F) {
	f.Add("one two, three. four", 1.5, 2.5, 4.0, uint8(3))
	f.Add(strings.Repeat("x", 200), 0.0, 0.0, .001, uint8(1))
	f.Fuzz(func(t *testing.T, text string, start, step, duration float64, perSegment uint8) {
		tr := aviary.Transcript{DurationSeconds: duration}
		if _, ok := aviary.Seconds(duration); !ok || duration > 1e6 || len(text) > 10_000 {
			t.Skip()
		}
		var s aviary.Segment
		for i, word := range strings.Split(text, " ") {
			s.Words = append(s.Words, aviary.Word{Word: word, Start: start + float64(i)*step, End: start + float64(i+1)*step})
			if len(s.Words) > int(perSegment) {
				tr.Segments = append(tr.Segments, s)
				s = aviary.Segment{}
			}
		}
		tr.Segments = append(tr.Segments, s)
		checkCaptions(t, tr)
		for _, f := range formats {
			_, _ = f.render("job_1", tr)
		}
	})
}

func TestCaptionTimes(t *testing.T) {
	t.Parallel()
	w := func(text string, start, end float64) aviary.Word {
		return aviary.Word{Word: text, Start: start, End: end}
	}
	for _, test := range []struct {
		name     string
		duration float64
		segments [][]aviary.Word
		want     string
	}{
		{"a short cue stays", 10, [][]aviary.Word{{w("Hi.", 1, 1.1)}}, "1000-1800 Hi."},
		{"but not into the next", 10, [][]aviary.Word{{w("Hi.", 1, 1.1)}, {w("You.", 1.5, 3)}}, "1000-1500 Hi.|1500-3000 You."},
		{"nor beyond the audio", 1.25, [][]aviary.Word{{w("Hi.", 1, 1.1)}}, "1000-1250 Hi."},
		{"a word without end is cut off", 60, [][]aviary.Word{{w("Ah", 1, 50)}}, "1000-8000 Ah"},
		{"a pause parts", 60, [][]aviary.Word{{w("one", 1, 2), w("two", 3.01, 4)}}, "1000-2000 one|3010-4000 two"},
		{"a breath does not", 60, [][]aviary.Word{{w("one", 1, 2), w("two", 3, 4)}}, "1000-4000 one two"},
		{"seven seconds part", 60, [][]aviary.Word{{w("one", 1, 4), w("two", 4.5, 7), w("three", 7, 9)}}, "1000-4000 one|4500-9000 two three"},
		{"segments part", 60, [][]aviary.Word{{w("one", 1, 2)}, {w("two", 2, 3)}}, "1000-2000 one|2000-3000 two"},
		{"overlap is cut", 60, [][]aviary.Word{{w("one", 1, 4)}, {w("two", 2, 3)}}, "1000-2000 one|2000-3000 two"},
		{"all at the end", 2, [][]aviary.Word{{w("one", 9, 9)}, {w("two", 9, 9)}}, "1998-1999 one|1999-2000 two"},
		{"the first of too many go", .002, [][]aviary.Word{{w("a", 0, 0)}, {w("b", 0, 0)}, {w("c", 0, 0)}}, "0-1 b|1-2 c"},
		{"no audio, no cues", 0, [][]aviary.Word{{w("a", 0, 0)}}, ""},
		{"no rounding down a millisecond", 10, [][]aviary.Word{{w("a", .29, 1.13)}}, "290-1130 a"},
	} {
		tr := aviary.Transcript{DurationSeconds: test.duration}
		for _, words := range test.segments {
			tr.Segments = append(tr.Segments, aviary.Segment{Words: words})
		}
		var got []string
		for _, c := range captions(tr) {
			got = append(got, fmt.Sprintf("%d-%d %s", c.start, c.end, strings.Join(c.lines, "/")))
		}
		if text := strings.Join(got, "|"); text != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, text, test.want)
		}
	}
}

func TestCaptionBreaks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"one line", "It fits in a line.", "It fits in a line."},
		{"at the comma, even if unequal", "After all these years, we have come home again.", "After all these years,/we have come home again."},
		{"in the middle", "the quick brown fox jumps over the lazy dog today", "the quick brown fox jumps/over the lazy dog today"},
		{"exactly a line", strings.Repeat("x", 42), strings.Repeat("x", 42)},
		{"one more", strings.Repeat("x", 43), strings.Repeat("x", 42) + "/x"},
		{"an accent stays with its letter", strings.Repeat("x", 41) + "e\u0301", strings.Repeat("x", 41) + "/e\u0301"},
		{"cues end at sentences", "It was the best of times for everyone in the town. It was the worst of times, we now know.",
			"It was the best of times/for everyone in the town.|It was the worst of times, we now know."},
	} {
		var tr aviary.Transcript
		tr.DurationSeconds = spoken(&tr, 0, test.text) + 1
		var got []string
		for _, c := range captions(tr) {
			got = append(got, strings.Join(c.lines, "/"))
		}
		if text := strings.Join(got, "|"); text != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, text, test.want)
		}
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]string{0: "00:00:00,000", 59_999: "00:00:59,999", 3_600_000: "01:00:00,000", 360_000_001: "100:00:00,001"} {
		if got := clock(ms, ','); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
}

// An hour of speech takes no noticeable time.
func BenchmarkCaptions(b *testing.B) {
	var tr aviary.Transcript
	at := 0.0
	for at < 3600 {
		at = spoken(&tr, at+.3, strings.Repeat("some words, and more of them ", 6)+"end.")
	}
	tr.DurationSeconds = at
	for b.Loop() {
		captions(tr)
	}
}
