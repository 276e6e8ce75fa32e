// Package checkpoint opens trained Parakeet models and hands out their
// configuration, vocabulary and weights under one set of names.
//
// Two layouts are read: a Hugging Face directory (config.json,
// processor_config.json, tokenizer.json, model.safetensors) and a NeMo archive
// (.nemo: a tar with YAML, a SentencePiece model and a PyTorch zip). Both are
// outside bytes: every length is bounded before it is believed, the pickle
// inside a .nemo may only build tensors, and a fault is reported with the file
// and the tensor or key. Tensor names are Hugging Face's; NeMo's are mapped by
// [CanonicalName].
//
// The package does not know what a layer computes. It may not decide which
// tensors a model needs (asr/parakeet does, and refuses what is missing or
// left over), and it never holds the weights: they stay in the file and are
// converted a block at a time into memory that the caller owns.
package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Format says which layout a checkpoint came in.
type Format string

// The layouts that Open recognizes.
const (
	HuggingFace Format = "huggingface"
	NeMo        Format = "nemo"
)

// Checkpoint is an opened model. Its tensors may be read from several
// goroutines at once until Close.
type Checkpoint struct {
	Config  Config
	Pieces  []Piece // in id order, len = Config.VocabSize (blank has no piece)
	Tensors Tensors
	Format  Format
	// Ignored lists, sorted and under the file's own names, the tensors that
	// are in the file but are not weights: batch counters of the training and
	// the window and filterbank, which asr/logmel computes itself.
	Ignored []string

	hashed []section // what SHA256 covers, in order
	closer closers
}

// Tensors gives access to the weights of a checkpoint by canonical name.
// Implementations are safe for concurrent use.
type Tensors interface {
	// Names lists all tensors in ascending order.
	Names() []string
	// Info describes a tensor; ok is false when there is none of that name.
	Info(name string) (info TensorInfo, ok bool)
	// Float32 reads a tensor in row-major order into dst, whose length must be
	// the tensor's number of elements. F16 and BF16 are widened exactly. I64
	// is refused.
	Float32(name string, dst []float32) error
	// BFloat16 is Float32 followed by rounding to the nearest bfloat16, ties
	// to even; a tensor stored as BF16 arrives bit for bit.
	BFloat16(name string, dst []uint16) error
}

// TensorInfo describes one tensor as it lies in the file.
type TensorInfo struct {
	Name  string
	DType DType
	Shape []int // outermost first; empty for a scalar
}

// Elements is the number of elements, 1 for a scalar.
func (t TensorInfo) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// DType is the type of a stored element.
type DType uint8

// The element types that checkpoints of this family use. All little-endian.
const (
	F32 DType = iota + 1
	F16
	BF16
	I64
)

// String is the name that safetensors gives to the type.
func (d DType) String() string {
	switch d {
	case F32:
		return "F32"
	case F16:
		return "F16"
	case BF16:
		return "BF16"
	case I64:
		return "I64"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Bytes is the size of one element.
func (d DType) Bytes() int {
	switch d {
	case F32:
		return 4
	case F16, BF16:
		return 2
	case I64:
		return 8
	}
	return 0
}

// Piece is one entry of the vocabulary.
type Piece struct {
	Text string // as stored: U+2581 marks the start of a word
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

// SHA256 is the hex digest of the weights: of model.safetensors (of all shards
// in name order, one after the other), or of the .nemo file as it is on disk.
// For an unsharded checkpoint it is what sha256sum prints. It reads the whole
// file on each call; ctx ends it early.
func (c *Checkpoint) SHA256(ctx context.Context) (string, error) {
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for _, s := range c.hashed {
		r := io.NewSectionReader(s.r, s.off, s.size)
		for {
			if err := ctx.Err(); err != nil {
				return "", fmt.Errorf("%s: hash: %w", s.name, err)
			}
			n, err := r.Read(buf)
			h.Write(buf[:n])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return "", fmt.Errorf("%s: hash: %w", s.name, err)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Close releases the files and removes the temporary one, if any. The tensors
// cannot be read afterwards. Close may be called more than once.
func (c *Checkpoint) Close() error { return c.closer.Close() }

// section is a range of a file that is read in place.
type section struct {
	name string // for errors: the file as the user knows it
	r    io.ReaderAt
	off  int64
	size int64
}

// closers run once, last one first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

// Close runs all of them, whatever fails.
func (c *closers) Close() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	*c = nil
	return errors.Join(errs...)
}
