package checkpoint

import (
	"slices"
	"strings"
	"testing"
)

func TestSentencePiece(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		data   string
		pieces []Piece
		want   string
	}{
		"types": {
			data:   "\x0a\x09\x0a\x05<unk>\x18\x02" + "\x0a\x0a\x0a\x06\xe2\x96\x81one\x18\x01" + "\x0a\x0a\x0a\x06<0x41>\x18\x06",
			pieces: []Piece{{"<unk>", Unknown}, {"\u2581one", Normal}, {"<0x41>", Byte}},
		},
		"type left out":        {data: "\x0a\x03\x0a\x01a", pieces: []Piece{{"a", Normal}}},
		"empty piece":          {data: "\x0a\x00", pieces: []Piece{{"", Normal}}},
		"other fields":         {data: "\x12\x03abc\x1d1234\x19" + "12345678\x20\x96\x01\x0a\x08\x0a\x01a\x151234", pieces: []Piece{{"a", Normal}}},
		"empty":                {data: "", want: "no pieces"},
		"only other fields":    {data: "\x12\x00", want: "no pieces"},
		"a piece as a number":  {data: "\x08\x01", want: "field 1 is not a message"},
		"type 7":               {data: "\x0a\x05\x0a\x01a\x18\x07", want: "piece 0: type 7, expected 1 to 6"},
		"type 0":               {data: "\x0a\x05\x0a\x01a\x18\x00", want: "piece 0: type 0"},
		"type as a message":    {data: "\x0a\x05\x0a\x01a\x1a\x00", want: "piece 0: type 0"},
		"text as a number":     {data: "\x0a\x02\x08\x01", want: "text is not a UTF-8 string"},
		"text not UTF-8":       {data: "\x0a\x03\x0a\x01\xff", want: "text is not a UTF-8 string"},
		"second piece broken":  {data: "\x0a\x03\x0a\x01a\x0a\x03\x0a\x09a", want: "piece 1: truncated"},
		"longer than the file": {data: "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", want: "truncated"},
		"endless varint":       {data: "\x08" + strings.Repeat("\xff", 11), want: "malformed number"},
		"group":                {data: "\x0b", want: "wire type 3"},
		"field 0":              {data: "\x02\x00", want: "malformed field key"},
		"short fixed":          {data: "\x1d123", want: "truncated"},
	} {
		pieces, err := readSentencePiece([]byte(tt.data))
		switch {
		case tt.want == "" && (err != nil || !slices.Equal(pieces, tt.pieces)):
			t.Errorf("%s: %v, %v, want %v", name, pieces, err, tt.pieces)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got error %v\nwant %s", name, err, tt.want)
		}
	}
}

func TestTokenizer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		data   string
		pieces []Piece
		want   string
	}{
		"types": {
			data: `{"added_tokens":[{"id":4,"content":"<blank>","special":true},{"id":1,"content":"<|x|>","special":false},{"id":0,"content":"<unk>","special":true}],
				"model":{"type":"BPE","unk_token":"<unk>","vocab":{"<unk>":0,"<|x|>":1,"▁a":2,"<0xF0>":3},"merges":[]}}`,
			pieces: []Piece{{"<unk>", Unknown}, {"<|x|>", UserDefined}, {"\u2581a", Normal}, {"<0xF0>", Byte}, {"<blank>", Control}},
		},
		"not quite bytes":  {data: `{"model":{"type":"BPE","vocab":{"<0xf0>":0,"<0x0>":1,"<0x1G>":2}}}`, pieces: []Piece{{"<0xf0>", Normal}, {"<0x0>", Normal}, {"<0x1G>", Normal}}},
		"empty":            {data: `{"model":{"type":"BPE","vocab":{}}}`, want: "model.vocab is empty"},
		"another model":    {data: `{"model":{"type":"WordPiece"}}`, want: `model.type is "WordPiece", expected "BPE"`},
		"not JSON":         {data: `{`, want: "unexpected end"},
		"id twice":         {data: `{"model":{"type":"BPE","vocab":{"a":0,"b":0}}}`, want: `"a" and "b" both have id 0`},
		"hole":             {data: `{"model":{"type":"BPE","vocab":{"a":0,"b":2}}}`, want: "2 pieces, but none has id 1"},
		"huge id":          {data: `{"model":{"type":"BPE","vocab":{"a":0,"b":4611686018427387904}}}`, want: "none has id 1"},
		"negative id":      {data: `{"model":{"type":"BPE","vocab":{"a":0,"b":-1}}}`, want: "none has id 1"},
		"added over a one": {data: `{"added_tokens":[{"id":0,"content":"b"}],"model":{"type":"BPE","vocab":{"a":0}}}`, want: `"b" has id 0, which is "a"`},
	} {
		pieces, err := readTokenizer([]byte(tt.data))
		switch {
		case tt.want == "" && (err != nil || !slices.Equal(pieces, tt.pieces)):
			t.Errorf("%s: %v, %v, want %v", name, pieces, err, tt.pieces)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got error %v\nwant %s", name, err, tt.want)
		}
	}
}

func FuzzSentencePiece(f *testing.F) {
	f.Add([]byte("\x0a\x09\x0a\x05<unk>\x18\x02\x0a\x0a\x0a\x06\xe2\x96\x81one\x18\x01"))
	f.Add([]byte("\x12\x03abc\x1d1234\x19" + "12345678\x20\x96\x01\x0a\x08\x0a\x01a\x151234"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pieces, err := readSentencePiece(data)
		if err == nil {
			checkPieces(t, pieces)
		}
	})
}

func FuzzTokenizer(f *testing.F) {
	f.Add([]byte(`{"added_tokens":[{"id":2,"content":"<blank>","special":true}],"model":{"type":"BPE","unk_token":"<unk>","vocab":{"<unk>":0,"▁a":1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		pieces, err := readTokenizer(data)
		if err == nil {
			checkPieces(t, pieces)
		}
	})
}

func checkPieces(t *testing.T, pieces []Piece) {
	t.Helper()
	if len(pieces) == 0 {
		t.Fatal("no pieces and no error")
	}
	for i, p := range pieces {
		if p.Type < Normal || p.Type > Byte {
			t.Fatalf("piece %d: %+v", i, p)
		}
	}
}
