package vocab

import (
	"slices"
	"strings"
	"time"
)

// EncoderFrames counts frames of the encoder, 80 ms each for all Parakeet models.
type EncoderFrames int

// Time is the length of f frames of the given length.
func (f EncoderFrames) Time(frame time.Duration) time.Duration { return time.Duration(f) * frame }

// Seconds is Time in seconds.
func (f EncoderFrames) Seconds(frame time.Duration) float64 { return f.Time(frame).Seconds() }

// Token is one recognized piece and when it was heard: in the frames from
// Start on and before End.
//
// For TDT, Start is the frame at which it was emitted and End is Start plus its
// duration, which may be 0. For CTC, they are the run of frames whose best
// class it was; NeMo takes for a CTC token's end its onset, and for its start the
// onset of the one before, which this package does not follow, as words would
// begin in the pause in front of them.
type Token struct {
	ID         int
	Start, End EncoderFrames
	// Probability that the model gave the token, above 0; 0 if it is not known.
	Probability float64
}

// Word is a word with the punctuation that follows it.
type Word struct {
	Text       string
	Start, End EncoderFrames
	// Confidence is the lowest probability of its tokens; 0 if one is not known.
	Confidence float64
}

// Words groups tokens, in the order of time. A word starts at a piece with a
// leading U+2581 that is not a punctuation mark, and ends with the last token
// before the next. Punctuation joins the word before it, and is moved to that
// word's end in time: models tend to set it after a pause, when it is certain.
// Special pieces and blank are skipped. The words, joined by spaces, are Text.
func (v *Vocabulary) Words(tokens []Token) []Word {
	b := wordBuilder{v: v}
	for _, t := range v.refine(tokens) {
		b.add(t)
	}
	b.flush()
	return b.words
}

// refine drops what is not text and moves punctuation to the end of the token
// before it.
func (v *Vocabulary) refine(tokens []Token) []Token {
	out := make([]Token, 0, len(tokens))
	for _, t := range tokens {
		p := v.at(t.ID)
		if p.dropped {
			continue
		}
		if p.punct && len(out) > 0 {
			t.Start, t.End = out[len(out)-1].End, out[len(out)-1].End
		}
		out = append(out, t)
	}
	return out
}

// wordBuilder holds the word that is being put together.
type wordBuilder struct {
	v     *Vocabulary
	words []Word
	open  []Token
	start EncoderFrames // of the open word: a leading lone U+2581 counts
}

func (b *wordBuilder) add(t Token) {
	p := b.v.at(t.ID)
	if p.starts {
		b.flush()
	}
	if len(b.open) == 0 {
		b.start = t.Start
	}
	if p.punct && len(b.open) > 0 {
		// The space between a word and its mark, when it is a token of its own.
		// (NeMo removes an underscore, too, which would lose text.)
		if last := b.v.at(b.open[len(b.open)-1].ID); last.text == " " {
			b.open = b.open[:len(b.open)-1]
		}
	}
	if p.punct && len(b.open) == 0 && len(b.words) > 0 {
		b.attach(t)
		return
	}
	b.open = append(b.open, t)
}

// attach adds a punctuation mark to the word that was finished last.
func (b *wordBuilder) attach(t Token) {
	w := &b.words[len(b.words)-1]
	w.Text = strings.TrimSuffix(w.Text, " ") + b.v.Text([]int{t.ID})
	w.End = t.End
	w.Confidence = min(w.Confidence, t.Probability)
}

// flush finishes the open word; a lone U+2581 is none.
func (b *wordBuilder) flush() {
	if len(b.open) == 0 {
		return
	}
	ids := make([]int, len(b.open))
	w := Word{Start: b.start, End: b.open[len(b.open)-1].End, Confidence: b.open[0].Probability}
	for i, t := range b.open {
		ids[i] = t.ID
		w.Confidence = min(w.Confidence, t.Probability)
	}
	b.open = b.open[:0]
	if w.Text = strings.TrimSpace(b.v.Text(ids)); w.Text != "" {
		b.words = append(b.words, w)
	}
}

// Segment is a run of words: a sentence, or what lies between two pauses.
type Segment struct {
	Text       string // the words, joined by spaces
	Start, End EncoderFrames
	Confidence float64 // the lowest of its words; 0 if one is not known
	Words      []Word
}

// Segments splits words after those that end in ".", "?" or "!" and, if gap is
// positive, before those that start gap or more after the end of the word
// before. Models without punctuation need the latter. (NeMo, given a gap, does
// not look at the punctuation of any but the first word of a segment; here
// both always count.)
func Segments(words []Word, gap EncoderFrames) []Segment {
	var segments []Segment
	first := 0
	for i, w := range words {
		paused := gap > 0 && i+1 < len(words) && words[i+1].Start-w.End >= gap
		if paused || i == len(words)-1 || endsSentence(w.Text) {
			segments = append(segments, segment(words[first:i+1]))
			first = i + 1
		}
	}
	return segments
}

func endsSentence(text string) bool {
	return strings.HasSuffix(text, ".") || strings.HasSuffix(text, "?") || strings.HasSuffix(text, "!")
}

// segment makes one of at least one word.
func segment(words []Word) Segment {
	texts := make([]string, len(words))
	s := Segment{
		Start: words[0].Start, End: words[len(words)-1].End,
		Confidence: words[0].Confidence, Words: slices.Clone(words),
	}
	for i, w := range words {
		texts[i] = w.Text
		s.Confidence = min(s.Confidence, w.Confidence)
	}
	s.Text = strings.Join(texts, " ")
	return s
}
