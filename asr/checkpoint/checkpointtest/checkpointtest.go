// Package checkpointtest writes checkpoints, for tests and for tools that make
// models with random weights. Nothing that serves users may import it.
//
// All writers stream: they ask for the elements of a tensor in order, a block
// at a time, so a 2.5 GB model needs no more memory than a small one.
package checkpointtest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// Fill sets dst to the elements offset, offset+1, ... of t in row-major order.
// The writers call it once per block, in order and without gaps, and round
// what it gives to t.DType. Tensors of I64 are batch counters and stay zero:
// it is not called for them.
type Fill func(t checkpoint.TensorInfo, offset int, dst []float32)

// Model is what the writers write. Tensors have canonical names.
type Model struct {
	Config  checkpoint.Config
	Pieces  []checkpoint.Piece // without blank
	Tensors []checkpoint.TensorInfo
	Fill    Fill
}

// blockElements is how many elements a Fill is asked for at a time.
const blockElements = 64 << 10

// writeTensor writes the elements of t as they lie in either format.
func writeTensor(w io.Writer, t checkpoint.TensorInfo, fill Fill) error {
	var (
		values = make([]float32, min(blockElements, t.Elements()))
		raw    = make([]byte, 0, len(values)*t.DType.Bytes())
	)
	for offset := 0; offset < t.Elements(); offset += len(values) {
		values = values[:min(len(values), t.Elements()-offset)]
		if t.DType != checkpoint.I64 {
			fill(t, offset, values)
		}
		raw = raw[:0]
		for _, v := range values {
			switch t.DType {
			case checkpoint.F32:
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
			case checkpoint.BF16:
				raw = binary.LittleEndian.AppendUint16(raw, checkpoint.RoundBFloat16(v))
			case checkpoint.I64:
				raw = binary.LittleEndian.AppendUint64(raw, 0)
			default:
				return fmt.Errorf("tensor %q: writing %s is not supported", t.Name, t.DType)
			}
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}

// Pieces makes up a vocabulary of n pieces: <unk>, then words that start and
// words that go on, all different.
func Pieces(n int) []checkpoint.Piece {
	pieces := make([]checkpoint.Piece, n)
	for i := range pieces {
		switch {
		case i == 0:
			pieces[i] = checkpoint.Piece{Text: "<unk>", Type: checkpoint.Unknown}
		case i%2 == 1:
			pieces[i] = checkpoint.Piece{Text: "\u2581" + letters(i), Type: checkpoint.Normal}
		default:
			pieces[i] = checkpoint.Piece{Text: letters(i), Type: checkpoint.Normal}
		}
	}
	return pieces
}

// letters writes n in base 26.
func letters(n int) string {
	s := ""
	for ; n > 0; n /= 26 {
		s = string(rune('a'+n%26)) + s
	}
	return s
}
