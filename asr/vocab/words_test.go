package vocab

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

// span is a piece with its times.
type span struct {
	piece      string
	start, end EncoderFrames
}

func TestWords(t *testing.T) {
	t.Parallel()
	v, ids := v3()
	for name, tt := range map[string]struct {
		tokens []span
		want   []Word
	}{
		"nothing":               {nil, nil},
		"only blank":            {[]span{{"blank", 0, 1}, {"<pad>", 1, 2}}, nil},
		"two words":             {[]span{{"▁hello", 2, 4}, {"▁world", 6, 9}}, []Word{{"hello", 2, 4, 0}, {"world", 6, 9, 0}}},
		"pieces of a word":      {[]span{{"▁the", 1, 2}, {"ing", 4, 6}, {"s", 6, 6}}, []Word{{"theings", 1, 6, 0}}},
		"first without a space": {[]span{{"ing", 3, 4}, {"▁the", 5, 6}}, []Word{{"ing", 3, 4, 0}, {"the", 5, 6, 0}}},
		"zero durations":        {[]span{{"▁hello", 5, 5}, {"▁world", 5, 8}}, []Word{{"hello", 5, 5, 0}, {"world", 5, 8, 0}}},
		"late full stop":        {[]span{{"▁hello", 2, 4}, {".", 30, 31}, {"▁world", 40, 42}}, []Word{{"hello.", 2, 4, 0}, {"world", 40, 42, 0}}},
		"two marks":             {[]span{{"▁hello", 2, 4}, {"?", 30, 31}, {"!", 33, 34}}, []Word{{"hello?!", 2, 4, 0}}},
		"mark with a space":     {[]span{{"▁hello", 2, 4}, {"▁.", 9, 10}, {"▁world", 12, 13}}, []Word{{"hello.", 2, 4, 0}, {"world", 12, 13, 0}}},
		"mark after a space":    {[]span{{"▁hello", 2, 4}, {"▁", 6, 7}, {".", 9, 10}, {"▁world", 12, 13}}, []Word{{"hello.", 2, 7, 0}, {"world", 12, 13, 0}}},
		"mark first":            {[]span{{".", 3, 4}, {"▁the", 5, 6}}, []Word{{".", 3, 4, 0}, {"the", 5, 6, 0}}},
		"space and mark first":  {[]span{{"▁", 3, 4}, {".", 5, 6}, {"▁the", 7, 8}}, []Word{{".", 3, 4, 0}, {"the", 7, 8, 0}}},
		"apostrophe":            {[]span{{"▁it", 2, 3}, {"'", 3, 4}, {"s", 6, 7}, {"▁the", 8, 9}}, []Word{{"it's", 2, 7, 0}, {"the", 8, 9, 0}}},
		"hyphen":                {[]span{{"▁the", 2, 3}, {"-", 3, 4}, {"ing", 4, 5}}, []Word{{"the-ing", 2, 5, 0}}},
		"lone space opens":      {[]span{{"▁", 2, 3}, {"ing", 4, 5}, {"▁", 6, 6}, {"s", 7, 8}}, []Word{{"ing", 2, 5, 0}, {"s", 6, 8, 0}}},
		"lone spaces":           {[]span{{"▁", 2, 3}, {"▁", 4, 5}, {"▁the", 6, 7}, {"▁", 8, 9}}, []Word{{"the", 6, 7, 0}}},
		"special inside":        {[]span{{"▁the", 1, 2}, {"<|nospeech|>", 3, 4}, {"ing", 5, 6}, {".", 8, 9}}, []Word{{"theing.", 1, 6, 0}}},
		"unknown is a word":     {[]span{{"▁the", 1, 2}, {"<unk>", 3, 4}, {"▁it", 5, 6}}, []Word{{"the", 1, 2, 0}, {"⁇", 3, 4, 0}, {"it", 5, 6, 0}}},
		"bytes":                 {[]span{{"▁caf", 1, 2}, {"<0xC3>", 2, 3}, {"<0xA9>", 3, 4}, {"<0x2E>", 9, 10}}, []Word{{"café.", 1, 4, 0}}},
		"unicode":               {[]span{{"▁Gr", 1, 2}, {"ü", 2, 3}, {"ße", 3, 5}, {"▁да", 6, 7}, {"、", 9, 9}}, []Word{{"Grüße", 1, 5, 0}, {"да、", 6, 7, 0}}},
	} {
		var tokens []Token
		for _, s := range tt.tokens {
			tokens = append(tokens, Token{ID: ids(s.piece)[0], Start: s.start, End: s.end})
		}
		before := slices.Clone(tokens)
		if got := v.Words(tokens); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		if !slices.Equal(tokens, before) {
			t.Errorf("%s: the tokens were changed", name)
		}
	}
}

// TestConfidenceIsNotInvented: it is the lowest of the tokens', and none where
// one has none.
func TestConfidenceIsNotInvented(t *testing.T) {
	t.Parallel()
	v, ids := v3()
	token := func(piece string, p float64) Token { return Token{ID: ids(piece)[0], Probability: p} }
	words := v.Words([]Token{
		token("▁hello", 0.9), token("s", 0.5), token("ing", 0.7), token("▁world", 0.8), token(".", 0.6),
		token("▁the", 0.9), token("s", 0), token("▁it", 1), token("▁", 0.4), token(".", 0.3),
	})
	var got []float64
	for _, w := range words {
		got = append(got, w.Confidence)
	}
	if want := []float64{0.5, 0.6, 0, 0.3}; !slices.Equal(got, want) {
		t.Errorf("confidences %v, want %v", got, want)
	}
	segments := Segments(words, 0)
	if len(segments) != 2 || segments[0].Confidence != 0.5 || segments[1].Confidence != 0 {
		t.Errorf("segments %+v", segments)
	}
}

func TestSegments(t *testing.T) {
	t.Parallel()
	at := func(text string, start, end EncoderFrames) Word { return Word{Text: text, Start: start, End: end} }
	words := []Word{
		at("Hello", 0, 4), at("there.", 5, 9), at("How", 9, 10), at("are", 30, 31), at("you?", 33, 35), at("Fine", 90, 95), at("e.g.", 96, 99), at("three", 110, 112),
	}
	for _, tt := range []struct {
		words []Word
		gap   EncoderFrames
		want  []string
	}{
		{nil, 0, nil},
		{nil, 5, nil},
		{words, 0, []string{"Hello there.", "How are you?", "Fine e.g.", "three"}},
		{words, 20, []string{"Hello there.", "How", "are you?", "Fine e.g.", "three"}},
		{words, 21, []string{"Hello there.", "How are you?", "Fine e.g.", "three"}},
		{words, 1, []string{"Hello", "there.", "How", "are", "you?", "Fine", "e.g.", "three"}},
		{words[:1], 0, []string{"Hello"}},
		{[]Word{at("!", 1, 1), at("wow", 2, 3)}, 0, []string{"!", "wow"}},
		{[]Word{at("да。", 1, 1), at("wow", 2, 3)}, 0, []string{"да。 wow"}},
	} {
		var texts []string
		var joined []Word
		for _, s := range Segments(tt.words, tt.gap) {
			texts = append(texts, s.Text)
			joined = append(joined, s.Words...)
			if s.Start != s.Words[0].Start || s.End != s.Words[len(s.Words)-1].End {
				t.Errorf("segment %+v does not span its words", s)
			}
		}
		if !slices.Equal(texts, tt.want) {
			t.Errorf("gap %d: %q, want %q", tt.gap, texts, tt.want)
		}
		if !reflect.DeepEqual(joined, slices.Clone(tt.words)) {
			t.Errorf("gap %d: words are lost or doubled", tt.gap)
		}
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	const frame = 80 * time.Millisecond
	if got := EncoderFrames(45000).Time(frame); got != time.Hour {
		t.Errorf("45000 frames last %v, want an hour", got)
	}
	if got := EncoderFrames(3).Seconds(frame); got != 0.24 {
		t.Errorf("3 frames last %v s, want 0.24", got)
	}
}

// checkWords holds what is true of any tokens: words in order, none empty, all
// of the text in them, and no time that is not a token's.
func checkWords(t *testing.T, v *Vocabulary, tokens []Token) {
	t.Helper()
	ids := make([]int, len(tokens))
	times := make(map[EncoderFrames]bool)
	for i, tok := range tokens {
		ids[i] = tok.ID
		times[tok.Start], times[tok.End] = true, true
	}
	words := v.Words(tokens)
	var joined strings.Builder
	last := EncoderFrames(0)
	for _, w := range words {
		if w.Text == "" || w.Start < last || w.End < w.Start || !times[w.Start] || !times[w.End] {
			t.Fatalf("%v: word %+v after frame %d", tokens, w, last)
		}
		last = w.Start
		joined.WriteString(w.Text)
	}
	if got, want := noSpace(joined.String()), noSpace(v.Text(ids)); got != want {
		t.Fatalf("%v: words %q, text %q", tokens, got, want)
	}
	n := 0
	for _, s := range Segments(words, 7) {
		n += len(s.Words)
	}
	if n != len(words) {
		t.Fatalf("%d words in segments, want %d", n, len(words))
	}
}

func noSpace(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return c
	}, s)
}

func TestWordsOfRandomTokens(t *testing.T) {
	t.Parallel()
	v, _ := v3()
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		tokens := make([]Token, r.IntN(30))
		at := EncoderFrames(0)
		for i := range tokens {
			at += EncoderFrames(r.IntN(3))
			tokens[i] = Token{ID: r.IntN(42), Start: at, End: at + EncoderFrames(r.IntN(2))}
			at = tokens[i].End
		}
		checkWords(t, v, tokens)
	}
}

func FuzzWords(f *testing.F) {
	f.Add("▁the|ing|.|▁|<0xC3>|<unk>|<|x|>|▁.", []byte{0, 1, 3, 2, 4, 4, 5, 6, 7, 0})
	f.Add("\xff|▁\xff|\xff.|<0x20>|▁ a|  ", []byte{0, 1, 2, 3, 3, 4, 5, 6})
	f.Fuzz(func(t *testing.T, pieces string, ids []byte) {
		v, _ := vocabulary(strings.Split(pieces, "|")...)
		tokens := make([]Token, len(ids))
		for i, id := range ids {
			tokens[i] = Token{ID: int(id), Start: EncoderFrames(2 * i), End: EncoderFrames(2*i + int(id)%3)}
		}
		checkWords(t, v, tokens)
	})
}
