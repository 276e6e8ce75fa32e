package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxPieces bounds a vocabulary. Parakeet's largest has 8,192 pieces.
const maxPieces = 1 << 20

// Protocol buffer wire types (protobuf.dev/programming-guides/encoding).
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// readSentencePiece reads the pieces of a SentencePiece model, in id order: the
// repeated field 1 of ModelProto, each with 1 = text and 3 = type
// (sentencepiece_model.proto). Scores and training parameters are skipped: they
// matter for splitting text, which recognition never does.
func readSentencePiece(data []byte) ([]Piece, error) {
	var pieces []Piece
	err := eachField(data, func(field uint64, _ uint64, body []byte) error {
		if field != 1 {
			return nil
		}
		if body == nil {
			return errors.New("field 1 is not a message")
		}
		if len(pieces) == maxPieces {
			return fmt.Errorf("more than %d pieces", maxPieces)
		}
		p, err := readPiece(body)
		if err != nil {
			return fmt.Errorf("piece %d: %w", len(pieces), err)
		}
		pieces = append(pieces, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(pieces) == 0 {
		return nil, errors.New("no pieces: not a SentencePiece model")
	}
	return pieces, nil
}

func readPiece(data []byte) (Piece, error) {
	p := Piece{Type: Normal}
	err := eachField(data, func(field, value uint64, body []byte) error {
		switch field {
		case 1:
			if body == nil || !utf8.Valid(body) {
				return errors.New("text is not a UTF-8 string")
			}
			p.Text = string(body)
		case 3:
			if body != nil || value < uint64(Normal) || value > uint64(Byte) {
				return fmt.Errorf("type %d, expected 1 to 6", value)
			}
			p.Type = PieceType(value)
		}
		return nil
	})
	return p, err
}

// eachField walks a protobuf message. For a length-delimited field body is its
// content and never nil; for the others value is the number.
func eachField(data []byte, visit func(field, value uint64, body []byte) error) error {
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		if n <= 0 || key>>3 == 0 {
			return errors.New("malformed field key")
		}
		data = data[n:]
		var value uint64
		var body []byte
		switch key & 7 {
		case wireVarint:
			if value, n = binary.Uvarint(data); n <= 0 {
				return errors.New("malformed number")
			}
			data = data[n:]
		case wireFixed64, wireFixed32:
			n := 8
			if key&7 == wireFixed32 {
				n = 4
			}
			if len(data) < n {
				return errors.New("truncated")
			}
			data = data[n:]
		case wireBytes:
			size, n := binary.Uvarint(data)
			if n <= 0 || size > uint64(len(data)-n) {
				return errors.New("truncated")
			}
			end := n + int(size)
			body, data = data[n:end:end], data[end:]
		default:
			return fmt.Errorf("wire type %d is not supported", key&7)
		}
		if err := visit(key>>3, value, body); err != nil {
			return err
		}
	}
	return nil
}
