// Package vocab turns the tokens of a recognizer into text, words with times,
// and segments, by the rules of NeMo for SentencePiece vocabularies.
//
// It is pure: pieces and tokens in, text out. It does not read files, encode
// text or decode logits, and it invents nothing: a word has a confidence only
// if every one of its tokens came with a probability, and ends where its last
// token does.
package vocab

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Piece is one entry of a vocabulary.
type Piece struct {
	Text string // as SentencePiece has it: U+2581 marks the start of a word
	Type PieceType
}

// PieceType is SentencePiece's classification, with its numbers.
type PieceType uint8

// The types of sentencepiece_model.proto.
const (
	Normal      PieceType = 1
	Unknown     PieceType = 2
	Control     PieceType = 3
	UserDefined PieceType = 4
	Unused      PieceType = 5
	Byte        PieceType = 6 // text is <0xHH>
)

// space is SentencePiece's visible form of a blank, U+2581.
const space = "\u2581"

// unknownText stands for a sound that the vocabulary cannot spell. It is
// SentencePiece's own sign, as a word.
const unknownText = space + "\u2047"

// Vocabulary renders token ids. It is immutable.
type Vocabulary struct {
	pieces      []rendered // by id
	punctuation map[rune]bool
}

// rendered is what a piece contributes to a text.
type rendered struct {
	text    string // with spaces for U+2581
	dropped bool   // contributes nothing
	raw     []byte // of a byte piece: one byte
	starts  bool   // starts a word
	punct   bool   // is one punctuation mark
}

// New makes a vocabulary of pieces in id order, without blank.
func New(pieces []Piece) *Vocabulary {
	v := &Vocabulary{pieces: make([]rendered, len(pieces)), punctuation: punctuation(pieces)}
	for id, p := range pieces {
		v.pieces[id] = v.render(p)
	}
	return v
}

func (v *Vocabulary) render(p Piece) rendered {
	value, isByte := byteValue(p)
	switch {
	case isByte:
		r := rendered{raw: []byte{value}}
		r.punct = v.punctuation[rune(value)] && value < utf8.RuneSelf
		return r
	case p.Type == Unknown || p.Text == "<unk>":
		p.Text = unknownText
	case isSpecial(p):
		return rendered{dropped: true}
	}
	r := rendered{text: strings.ReplaceAll(p.Text, space, " ")}
	alone := strings.TrimPrefix(r.text, " ")
	c, size := utf8.DecodeRuneInString(alone)
	r.punct = size > 0 && size == len(alone) && v.punctuation[c]
	r.starts = strings.HasPrefix(p.Text, space) && !r.punct
	return r
}

// byteValue recognizes the pieces that stand for raw bytes.
func byteValue(p Piece) (byte, bool) {
	if p.Type != Byte && p.Type != Normal || len(p.Text) != len("<0x00>") || !strings.HasPrefix(p.Text, "<0x") || p.Text[5] != '>' {
		return 0, false
	}
	n, err := strconv.ParseUint(p.Text[3:5], 16, 8)
	return byte(n), err == nil
}

// isSpecial recognizes pieces that steer a model and are no text: control
// pieces, and by name those that vocabularies declare as something else.
func isSpecial(p Piece) bool {
	named := strings.HasPrefix(p.Text, "<|") && strings.HasSuffix(p.Text, "|>") && len(p.Text) >= len("<||>")
	return named || p.Type == Control || p.Type == Unused || p.Text == "<pad>" || p.Text == "<blank>"
}

// punctuation collects the marks that a vocabulary can set: every character of
// Unicode's categories P in a piece, but for pieces that start a word and names
// in brackets.
func punctuation(pieces []Piece) map[rune]bool {
	marks := make(map[rune]bool)
	for _, p := range pieces {
		t := p.Text
		bracketed := strings.HasPrefix(t, "[") && strings.HasSuffix(t, "]") || strings.HasPrefix(t, "<") && strings.HasSuffix(t, ">")
		if bracketed || strings.HasPrefix(t, space) || strings.HasPrefix(t, "##") {
			continue
		}
		for _, c := range t {
			if unicode.IsPunct(c) {
				marks[c] = true
			}
		}
	}
	return marks
}

// at gives the rendering of an id; what is not in the vocabulary, such as
// blank, is dropped.
func (v *Vocabulary) at(id int) rendered {
	if id < 0 || id >= len(v.pieces) {
		return rendered{dropped: true}
	}
	return v.pieces[id]
}

// Text joins the pieces: U+2581 becomes a space, one leading space is removed,
// bytes are decoded as UTF-8 with U+FFFD for what is not, special pieces and
// blank are dropped, and a space in front of a punctuation mark is removed.
func (v *Vocabulary) Text(ids []int) string {
	var text strings.Builder
	var raw []byte // of consecutive byte pieces
	flush := func() {
		for _, c := range string(raw) { // a broken byte comes as U+FFFD
			text.WriteRune(c)
		}
		raw = raw[:0]
	}
	for _, id := range ids {
		p := v.at(id)
		switch {
		case p.dropped:
		case p.raw != nil:
			raw = append(raw, p.raw...)
		default:
			flush()
			text.WriteString(p.text)
		}
	}
	flush()
	return v.closeUp(strings.TrimPrefix(text.String(), " "))
}

// closeUp removes one space directly in front of each punctuation mark.
func (v *Vocabulary) closeUp(text string) string {
	in := []rune(text)
	out := make([]rune, 0, len(in))
	for i, c := range in {
		if unicode.IsSpace(c) && i+1 < len(in) && v.punctuation[in[i+1]] {
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

// Punctuation lists the marks that the vocabulary can set, in ascending order.
func (v *Vocabulary) Punctuation() []rune {
	marks := make([]rune, 0, len(v.punctuation))
	for c := range v.punctuation {
		marks = append(marks, c)
	}
	slices.Sort(marks)
	return marks
}
