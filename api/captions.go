package api

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

// The rules of captions. They are common practice of subtitlers; the numbers for lines are the contract's.
const (
	lineRunes    = 42   // most characters in a line
	cueLines     = 2    // most lines in a cue
	longestCue   = 7000 // ms
	shortestCue  = 800  // ms; a shorter one stays on the screen for as long, where there is room before the next
	longestPause = 1000 // ms of silence within a cue; a longer pause ends it
)

// The costs by which layouts are compared. Only their ratios matter. A line break also costs the difference of the lines' lengths.
const (
	costCue      = 140 // of each cue
	costShort    = 84  // of one shorter than shortestCue
	costClause   = 42  // of ending one after a comma rather than a sentence
	costWord     = 126 // of ending one without any mark
	costBreath   = 70  // the same, but at a small pause
	costLine     = 14  // of a second line
	costLineWord = 28  // of breaking lines without a mark
)

// caption is one cue: from start to before end, in ms, with one or two lines.
type caption struct {
	start, end int64
	lines      []string
}

// piece is a word, or a part of one that is longer than a line.
type piece struct {
	text       string
	runes      int
	start, end int64 // ms
	last       bool  // the cue ends here: at the end of a segment, or before a pause
}

// captions lays a transcript out in cues. For any transcript at all: no cue is negative, empty or overlaps another, none ends after the
// audio, and no line or cue is too long. The words' order is kept; should there be more cues than milliseconds, the first are dropped.
func captions(t aviary.Transcript) []caption {
	limit := milliseconds(t.DurationSeconds, math.MaxInt32)
	pieces := cut(t, limit)
	var cues []caption
	for begin, i := 0, 0; i < len(pieces); i++ {
		if pieces[i].last {
			cues = append(cues, layout(pieces[begin:i+1])...)
			begin = i + 1
		}
	}
	return settle(cues, limit)
}

// milliseconds rounds down what is at least 0 and at most limit; anything else becomes 0 or limit.
func milliseconds(seconds float64, limit int64) int64 {
	ms := seconds * 1000
	switch {
	case !(ms > 0): // NaN too
		return 0
	case ms >= float64(limit):
		return limit
	}
	return int64(ms + 1e-6) // 0.29 s is 290 ms, although 0.29*1000 is a little less
}

// cut lists the pieces of a transcript in order, with starts that never decrease.
func cut(t aviary.Transcript, limit int64) []piece {
	var pieces []piece
	now := int64(0)
	for _, segment := range t.Segments {
		words := segment.Words
		if len(words) == 0 {
			words = []aviary.Word{{Word: segment.Text, Start: segment.Start, End: segment.End}}
		}
		for _, w := range words {
			start := max(now, milliseconds(w.Start, limit))
			end := max(start, milliseconds(w.End, limit))
			now = start
			pieces = appendPieces(pieces, w.Word, start, end)
		}
		if len(pieces) > 0 {
			pieces[len(pieces)-1].last = true
		}
	}
	for i := 1; i < len(pieces); i++ {
		if pieces[i].start-pieces[i-1].end > longestPause {
			pieces[i-1].last = true
		}
	}
	return pieces
}

// appendPieces cuts a word at white space and where it exceeds a line, and shares its time out among the pieces by their length.
func appendPieces(pieces []piece, word string, start, end int64) []piece {
	first := len(pieces)
	total := 0
	for _, field := range strings.FieldsFunc(strings.ToValidUTF8(word, "\uFFFD"), blank) {
		for field != "" {
			head := field[:lineEnd(field)]
			field = field[len(head):]
			runes := utf8.RuneCountInString(head)
			pieces = append(pieces, piece{text: head, runes: runes})
			total += runes
		}
	}
	done := 0
	for i := first; i < len(pieces); i++ {
		p := &pieces[i]
		p.start = start + (end-start)*int64(done)/int64(total)
		done += p.runes
		p.end = start + (end-start)*int64(done)/int64(total)
	}
	return pieces
}

// blank is what separates words, and what must not stand in a cue.
func blank(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}

// lineEnd is the length in bytes of what of s fits in a line. It does not part a letter from its accents, if it can.
func lineEnd(s string) int {
	runes, letter := 0, 0
	for i, r := range s {
		if !unicode.Is(unicode.M, r) {
			letter = i
		}
		if runes == lineRunes {
			if letter > 0 {
				return letter
			}
			return i
		}
		runes++
	}
	return len(s)
}

// layout parts pieces that belong together into cues, at the least cost: few cues, which end after punctuation or at least in a small
// pause, are not too short, and break well into lines. It is the shortest path through the possible ends of cues.
func layout(pieces []piece) []caption {
	n := len(pieces)
	cost := make([]int, n+1) // of the best layout of pieces[:j]
	from := make([]int, n+1) // where its last cue begins
	for j := 1; j <= n; j++ {
		cost[j] = math.MaxInt
		for i := j - 1; i >= 0; i-- {
			lines, ok := bestLines(pieces[i:j])
			if !ok || i < j-1 && pieces[j-1].end-pieces[i].start > longestCue {
				break // a longer cue fits still less
			}
			c := cost[i] + cueCost(pieces, i, j) + lines.cost
			if c < cost[j] {
				cost[j], from[j] = c, i
			}
		}
	}
	var ends []int
	for j := n; j > 0; j = from[j] {
		ends = append(ends, j)
	}
	cues := make([]caption, 0, len(ends))
	for k := len(ends) - 1; k >= 0; k-- {
		of := pieces[from[ends[k]]:ends[k]]
		lines, _ := bestLines(of)
		c := caption{start: of[0].start, end: of[len(of)-1].end, lines: []string{join(of[:lines.first])}}
		if lines.first < len(of) {
			c.lines = append(c.lines, join(of[lines.first:]))
		}
		cues = append(cues, c)
	}
	return cues
}

// cueCost is the cost of the cue pieces[i:j] apart from its lines.
func cueCost(pieces []piece, i, j int) int {
	cost := costCue
	if pieces[j-1].end-pieces[i].start < shortestCue {
		cost += costShort
	}
	if j == len(pieces) {
		return cost
	}
	breath := pieces[j].start-pieces[j-1].end >= longestPause/4
	switch mark := ending(pieces[j-1].text); {
	case mark == endsSentence:
	case mark == endsClause:
		cost += costClause
	case breath:
		cost += costBreath
	default:
		cost += costWord
	}
	return cost
}

// lineBreak says how pieces stand in one or two lines: the first `first` of them in the first.
type lineBreak struct{ first, cost int }

// bestLines finds the best break, and reports false when the pieces do not fit in a cue. One line is best, then a break after punctuation, then
// lines of like length.
func bestLines(pieces []piece) (lineBreak, bool) {
	total := -1
	for _, p := range pieces {
		total += p.runes + 1
	}
	if total <= lineRunes {
		return lineBreak{first: len(pieces)}, true
	}
	best := lineBreak{cost: math.MaxInt}
	upper := -1
	for k := 1; k < len(pieces) && upper < lineRunes; k++ {
		upper += pieces[k-1].runes + 1
		lower := total - upper - 1
		if upper > lineRunes || lower > lineRunes {
			continue
		}
		cost := costLine + max(upper-lower, lower-upper)
		if ending(pieces[k-1].text) == endsNothing {
			cost += costLineWord
		}
		if cost < best.cost {
			best = lineBreak{first: k, cost: cost}
		}
	}
	return best, best.first > 0
}

func join(pieces []piece) string {
	words := make([]string, len(pieces))
	for i, p := range pieces {
		words[i] = p.text
	}
	return strings.Join(words, " ")
}

// What a word ends.
const (
	endsNothing = iota
	endsClause
	endsSentence
)

// ending looks at a word's last mark, through closing quotes and brackets.
func ending(word string) int {
	word = strings.TrimRight(word, "\"'”’»)]")
	switch r, _ := utf8.DecodeLastRuneInString(word); r {
	case '.', '?', '!', '…', '。', '？', '！':
		return endsSentence
	case ',', ';', ':', '–', '—', '、', '，':
		return endsClause
	}
	return endsNothing
}

// settle gives the cues their final times: short ones stay a little longer, none is longer than longestCue, each ends before the next begins,
// and the last before the audio does.
func settle(cues []caption, limit int64) []caption {
	for i := range cues {
		c := &cues[i]
		c.end = min(max(c.end, c.start+shortestCue), c.start+longestCue)
		if i+1 < len(cues) {
			c.end = min(c.end, cues[i+1].start)
		}
		if i > 0 {
			c.start = max(c.start, cues[i-1].end)
		}
		c.end = max(c.end, c.start+1)
	}
	for i := len(cues) - 1; i >= 0; i-- { // where the end has no room, cues move back a little
		c := &cues[i]
		c.end = min(c.end, limit)
		c.start = min(c.start, c.end-1)
		limit = c.start
		if c.start < 0 {
			return cues[i+1:]
		}
	}
	return cues
}
