package wer

import (
	"strings"
	"unicode"
)

// Words splits an English text for comparison: lower case, without punctuation
// and symbols, which separate words like spaces do. Two marks stay: an
// apostrophe between letters (it's), typographic or not, and one of . , : /
// between digits (3.5, 10:30). Numbers are left as they are written: "3" and
// "three" differ.
func Words(text string) []string {
	in := []rune(strings.ToLower(text))
	out := make([]rune, len(in))
	for i, c := range in {
		if c == '’' || c == '‘' {
			c = '\''
		}
		inside := func(class func(rune) bool) bool {
			return i > 0 && i+1 < len(in) && class(in[i-1]) && class(in[i+1])
		}
		switch {
		case c == '\'' && inside(unicode.IsLetter), strings.ContainsRune(".,:/", c) && inside(unicode.IsDigit):
		case unicode.IsPunct(c), unicode.IsSymbol(c), !unicode.IsPrint(c):
			c = ' '
		}
		out[i] = c
	}
	return strings.Fields(string(out))
}

// Normalize is Words, joined by single spaces.
func Normalize(text string) string { return strings.Join(Words(text), " ") }
