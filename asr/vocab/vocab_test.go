package vocab

import (
	"slices"
	"testing"
)

// vocabulary makes one of piece texts; the types follow from their forms as in
// a checkpoint.
func vocabulary(texts ...string) (*Vocabulary, func(texts ...string) []int) {
	pieces := make([]Piece, len(texts))
	for i, t := range texts {
		pieces[i] = Piece{Text: t, Type: Normal}
		switch {
		case t == "<unk>":
			pieces[i].Type = Unknown
		case t == "<s>":
			pieces[i].Type = Control
		case len(t) == 6 && t[:3] == "<0x":
			pieces[i].Type = Byte
		}
	}
	ids := func(wanted ...string) []int {
		list := make([]int, len(wanted))
		for i, w := range wanted {
			if list[i] = slices.Index(texts, w); list[i] < 0 {
				list[i] = len(texts) // blank
			}
		}
		return list
	}
	return New(pieces), ids
}

// v3 has the pieces of a multilingual vocabulary that the rules distinguish.
func v3() (*Vocabulary, func(...string) []int) {
	return vocabulary(
		"<unk>", "<|nospeech|>", "<pad>", "<|endoftext|>", "<s>", "<blank>",
		"▁", "▁the", "▁hello", "▁world", "ing", "s", "▁it", "'", ",", ".", "?", "!", "-", "¿", "%", "▁.", "▁¿",
		"▁Gr", "ü", "ße", "▁да", "、", "<0xC3>", "<0xA9>", "<0xE2>", "<0x2E>", "▁caf", "_", "[x*]", "##'", "▁\"", "+", "1",
	)
}

func TestText(t *testing.T) {
	t.Parallel()
	v, ids := v3()
	for _, tt := range []struct {
		pieces []string
		want   string
	}{
		{nil, ""},
		{[]string{"▁hello", "▁world"}, "hello world"},
		{[]string{"▁the", "ing", "s"}, "theings"},
		{[]string{"ing", "▁the"}, "ing the"},
		{[]string{"▁"}, ""},
		{[]string{"▁", "▁the"}, " the"}, // only one leading space goes
		{[]string{"▁hello", "▁"}, "hello "},
		{[]string{"▁hello", "▁", "."}, "hello."},
		{[]string{"▁hello", "▁", "▁", "."}, "hello ."}, // one space for each mark
		{[]string{"▁hello", ",", "▁world", "!"}, "hello, world!"},
		{[]string{"▁hello", "▁.", "▁world"}, "hello. world"},
		{[]string{"▁hello", "▁¿", "▁world"}, "hello¿ world"},
		{[]string{"▁it", "'", "s"}, "it's"},
		{[]string{"▁the", "▁", "'", "s"}, "the's"},
		{[]string{"▁the", "-", "▁it"}, "the- it"},
		{[]string{"▁the", "▁", "+", "1"}, "the +1"}, // a symbol is no punctuation
		{[]string{"▁the", "▁\"", "▁it"}, "the \" it"},
		{[]string{"▁Gr", "ü", "ße", "▁да", "、"}, "Grüße да、"},
		{[]string{"▁the", "<unk>", "▁it"}, "the ⁇ it"},
		{[]string{"<unk>"}, "⁇"},
		{[]string{"<|nospeech|>", "▁the", "<pad>", "<s>", "<|endoftext|>", "▁it", "<blank>", "not there"}, "the it"},
		{[]string{"▁caf", "<0xC3>", "<0xA9>"}, "café"},
		{[]string{"▁caf", "<0xC3>", "<|nospeech|>", "<0xA9>"}, "café"},
		{[]string{"▁caf", "<0xC3>", "s", "<0xA9>"}, "caf\uFFFDs\uFFFD"},
		{[]string{"▁caf", "<0xA9>", "<0xC3>"}, "caf\uFFFD\uFFFD"},
		{[]string{"▁caf", "<0xE2>", "<0xC3>", "<0xA9>"}, "caf\uFFFDé"},
		{[]string{"▁the", "▁", "<0x2E>"}, "the."},
	} {
		if got := v.Text(ids(tt.pieces...)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.pieces, got, tt.want)
		}
	}
	if got := v.Text([]int{-1, 7, 1 << 40}); got != "the" {
		t.Errorf("ids that are no pieces: %q", got)
	}
}

// TestPunctuation: names in brackets, word starts and "##" do not count.
func TestPunctuation(t *testing.T) {
	t.Parallel()
	v, _ := v3()
	want := []rune("!%',-.?_¿、")
	if got := v.Punctuation(); !slices.Equal(got, want) {
		t.Errorf("punctuation %q, want %q", got, want)
	}
	v, _ = vocabulary("▁one", "▁two", "<unk>")
	if got := v.Punctuation(); len(got) != 0 {
		t.Errorf("punctuation %q of a vocabulary without", got)
	}
}

func TestTypesDecideBeforeNames(t *testing.T) {
	t.Parallel()
	v := New([]Piece{
		{"▁a", Normal}, {"</s>", Control}, {"old", Unused}, {"mystery", Unknown}, {"▁b", UserDefined},
		{"<|x|>", UserDefined}, {"<0x41>", UserDefined}, {"<0xZZ>", Byte}, {"<||>", Normal}, {"<|>", Normal},
	})
	if got, want := v.Text([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "a ⁇ b<0x41><0xZZ><|>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDigits: a small vocabulary of whole words without punctuation.
func TestDigits(t *testing.T) {
	t.Parallel()
	v, ids := vocabulary("<unk>", "▁zero", "▁one", "▁two", "▁th", "ree")
	tokens := []Token{
		{ID: 2, Start: 3, End: 5}, {ID: 4, Start: 9, End: 10}, {ID: 5, Start: 10, End: 13}, {ID: 6, Start: 20, End: 21}, {ID: 1, Start: 30, End: 34},
	}
	want := []Word{{Text: "one", Start: 3, End: 5}, {Text: "three", Start: 9, End: 13}, {Text: "zero", Start: 30, End: 34}}
	if got := v.Words(tokens); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := v.Text(ids("▁one", "▁th", "ree", "", "▁zero")); got != "one three zero" {
		t.Errorf("%q", got)
	}
}
