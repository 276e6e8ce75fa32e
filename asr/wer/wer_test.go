package wer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reference, hypothesis string
		want                  Counts
		percent               float64
	}{
		{"", "", Counts{}, 0},
		{"", "a b", Counts{Insertions: 2}, 200},
		{"a b", "", Counts{Words: 2, Deletions: 2}, 100},
		{"a", "a", Counts{Words: 1}, 0},
		{"a b c", "a b c", Counts{Words: 3}, 0},
		{"a b c", "a x c", Counts{Words: 3, Substitutions: 1}, 100.0 / 3},
		{"a b c", "a c", Counts{Words: 3, Deletions: 1}, 100.0 / 3},
		{"a c", "a b c", Counts{Words: 2, Insertions: 1}, 50},
		{"a", "x y z", Counts{Words: 1, Substitutions: 1, Insertions: 2}, 300},
		{"a b c d", "b c d e", Counts{Words: 4, Deletions: 1, Insertions: 1}, 50},
		{"a b", "b a", Counts{Words: 2, Deletions: 1, Insertions: 1}, 100},
		{"a a a", "a", Counts{Words: 3, Deletions: 2}, 200.0 / 3},
		{"one two three four five", "one too three five six", Counts{Words: 5, Substitutions: 1, Deletions: 1, Insertions: 1}, 60},
	} {
		got := Compare(strings.Fields(tt.reference), strings.Fields(tt.hypothesis))
		if got != tt.want || got.Percent() != tt.percent {
			t.Errorf("%q, %q: %+v, %v %%, want %+v, %v %%", tt.reference, tt.hypothesis, got, got.Percent(), tt.want, tt.percent)
		}
	}
}

func TestAlign(t *testing.T) {
	t.Parallel()
	got := Align(strings.Fields("one two three four five"), strings.Fields("one too three five six"))
	want := []Step{
		{Match, "one", "one"}, {Substitution, "two", "too"}, {Match, "three", "three"},
		{Deletion, "four", ""}, {Match, "five", "five"}, {Insertion, "", "six"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Align(nil, nil); len(got) != 0 {
		t.Errorf("alignment of nothing: %v", got)
	}
}

// TestAlignmentsAreWholeAndAgree compares Align and Compare on random texts with
// each other and with the plain recursion.
func TestAlignmentsAreWholeAndAgree(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	random := func() []string {
		words := make([]string, r.IntN(8))
		for i := range words {
			words[i] = string(rune('a' + r.IntN(3)))
		}
		return words
	}
	for range 3000 {
		a, b := random(), random()
		var reference, hypothesis []string
		counted := Counts{Words: len(a)}
		for _, s := range Align(a, b) {
			switch s.Op {
			case Substitution:
				counted.Substitutions++
			case Deletion:
				counted.Deletions++
			case Insertion:
				counted.Insertions++
			case Match:
			}
			if (s.Op == Match) != (s.Reference == s.Hypothesis) {
				t.Fatalf("%v, %v: step %v", a, b, s)
			}
			if s.Op != Insertion {
				reference = append(reference, s.Reference)
			}
			if s.Op != Deletion {
				hypothesis = append(hypothesis, s.Hypothesis)
			}
		}
		if !slices.Equal(reference, a) || !slices.Equal(hypothesis, b) {
			t.Fatalf("%v, %v: the alignment has %v, %v", a, b, reference, hypothesis)
		}
		if got := Compare(a, b); got != counted {
			t.Fatalf("%v, %v: Compare %+v, Align %+v", a, b, got, counted)
		}
		if want := distance(a, b); counted.Errors() != want {
			t.Fatalf("%v, %v: %d errors, want %d", a, b, counted.Errors(), want)
		}
	}
}

// distance is Levenshtein's by its definition.
func distance(a, b []string) int {
	switch {
	case len(a) == 0:
		return len(b)
	case len(b) == 0:
		return len(a)
	case a[0] == b[0]:
		return distance(a[1:], b[1:])
	}
	return 1 + min(distance(a[1:], b), distance(a, b[1:]), distance(a[1:], b[1:]))
}

// TestCorpus: the rate of a corpus weighs its texts by their length.
func TestCorpus(t *testing.T) {
	t.Parallel()
	var total Counts
	total.Add(Texts("one", "two"))
	total.Add(Texts("one two three four five six seven eight nine", "one two three four five six seven eight nine"))
	total.Add(Texts("", "uh"))
	want := Counts{Words: 10, Substitutions: 1, Insertions: 1}
	if total != want || total.Percent() != 20 {
		t.Errorf("%+v, %v %%, want %+v, 20 %%", total, total.Percent(), want)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "",
		" \t\n ":                            "",
		"Hello, World!":                     "hello world",
		"It's, it’s and ‘it’":               "it's it's and it",
		"'tis the dogs' rock 'n' roll":      "tis the dogs rock n roll",
		"twenty-one — or 21":                "twenty one or 21",
		"3.5, 1,000 and 10:30. 1/2":         "3.5 1,000 and 10:30 1/2",
		".5 5. a.5 5.a":                     "5 5 a 5 5 a",
		"$5 + 7% = ©":                       "5 7",
		"GRÜSSE ÀÉ Ελλάδα Да":               "grüsse àé ελλάδα да",
		"¿Qué? «oui» “yes” ⁇":               "qué oui yes",
		"a\u00a0b\u2003c\u200bd\x00e":       "a b c d e",
		"one\u2026two...three":              "one two three",
		"\xff broken \xc3":                  "broken",
		"snake_case [laughs] (it) <|x|> a*": "snake case laughs it x a",
	} {
		if got := Normalize(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if again := Normalize(Normalize(text)); again != Normalize(text) {
			t.Errorf("%q: normalized twice: %q", text, again)
		}
	}
}

func FuzzTexts(f *testing.F) {
	f.Add("It's 3.5, no?", "its 3 5 No")
	f.Add("\xff'\xff", "Ⅷ ẞ İ")
	f.Fuzz(func(t *testing.T, a, b string) {
		if n := Normalize(a); Normalize(n) != n {
			t.Fatalf("%q is normalized to %q, and that to %q", a, n, Normalize(n))
		}
		c := Texts(a, b)
		if c.Errors() < 0 || c.Errors() > max(len(Words(a)), len(Words(b))) || c.Words != len(Words(a)) {
			t.Fatalf("%q, %q: %+v", a, b, c)
		}
		if same := Texts(a, a); same.Errors() != 0 {
			t.Fatalf("%q against itself: %+v", a, same)
		}
		if back := Texts(b, a); back.Errors() != c.Errors() {
			t.Fatalf("%q, %q: %+v, and the other way %+v", a, b, c, back)
		}
	})
}
