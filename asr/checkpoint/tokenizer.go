package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
)

// readTokenizer reads the pieces of a Hugging Face tokenizer.json, in id order
// and with the added tokens. The file gives no types; they follow from what it
// says elsewhere: special tokens are control pieces, <0xHH> are bytes.
func readTokenizer(data []byte) ([]Piece, error) {
	var file struct {
		Model struct {
			Type     string         `json:"type"`
			UnkToken string         `json:"unk_token"`
			Vocab    map[string]int `json:"vocab"`
		} `json:"model"`
		AddedTokens []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.Model.Type != "BPE" {
		return nil, fmt.Errorf("model.type is %q, expected \"BPE\"", file.Model.Type)
	}
	byID := make(map[int]Piece, len(file.Model.Vocab))
	for text, id := range file.Model.Vocab {
		if other, dup := byID[id]; dup {
			return nil, fmt.Errorf("model.vocab: %q and %q both have id %d", min(text, other.Text), max(text, other.Text), id)
		}
		p := Piece{Text: text, Type: Normal}
		switch {
		case text == file.Model.UnkToken || text == "<unk>":
			p.Type = Unknown
		case isBytePiece(text):
			p.Type = Byte
		}
		byID[id] = p
	}
	for _, t := range file.AddedTokens {
		p, known := byID[t.ID]
		if known && p.Text != t.Content {
			return nil, fmt.Errorf("added_tokens: %q has id %d, which is %q in model.vocab", t.Content, t.ID, p.Text)
		}
		switch {
		case p.Type == Unknown:
		case t.Special:
			p.Type = Control
		default:
			p.Type = UserDefined
		}
		p.Text = t.Content
		byID[t.ID] = p
	}
	return dense(byID)
}

// dense lines pieces up by id and names the first id without one.
func dense(byID map[int]Piece) ([]Piece, error) {
	if len(byID) == 0 {
		return nil, errors.New("model.vocab is empty")
	}
	pieces := make([]Piece, len(byID))
	for id := range pieces {
		p, ok := byID[id]
		if !ok {
			return nil, fmt.Errorf("%d pieces, but none has id %d", len(byID), id)
		}
		pieces[id] = p
	}
	return pieces, nil
}

// isBytePiece recognizes <0x00> to <0xFF>, SentencePiece's spelling of bytes.
func isBytePiece(s string) bool {
	return len(s) == 6 && s[:3] == "<0x" && s[5] == '>' && isHex(s[3]) && isHex(s[4])
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' }
