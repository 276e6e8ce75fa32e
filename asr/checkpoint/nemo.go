package checkpoint

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

const (
	nemoConfigFile  = "model_config.yaml"
	nemoWeightsFile = "model_weights.ckpt"

	maxNemoMembers   = 1000
	maxArtifactBytes = 16 << 20 // of a member that is not the weights
	maxWeightsBytes  = 64 << 30 // unpacked, so that a small gzip cannot fill a disk
)

// openNemo reads a .nemo file into c.
func openNemo(dir *directory, name string, c *Checkpoint) error {
	c.Format = NeMo
	file, err := dir.open(name, c)
	if err != nil {
		return err
	}
	c.hashed = []section{file}
	members, err := readNemo(file, c)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := members.build(c); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// nemoMembers is what a .nemo archive holds, by name without a leading "./".
type nemoMembers struct {
	small   map[string][]byte
	weights *section
}

// readNemo walks the tar. Of a plain one the weights stay where they are; those
// of a compressed one go to a temporary file that c.Close removes.
func readNemo(file section, c *Checkpoint) (*nemoMembers, error) {
	whole := io.NewSectionReader(file.r, file.off, file.size)
	var magic [2]byte
	if _, err := io.ReadFull(whole, magic[:]); err != nil {
		return nil, fmt.Errorf("%d bytes, expected a tar archive", file.size)
	}
	if magic == [2]byte{0x1f, 0x8b} {
		if _, err := whole.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		z, err := gzip.NewReader(bufio.NewReaderSize(whole, 1<<20))
		if err != nil {
			return nil, err
		}
		return walkNemo(tar.NewReader(z), func(r io.Reader, _ int64) (*section, error) {
			return unpack(r, c)
		})
	}
	if _, err := whole.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return walkNemo(tar.NewReader(whole), func(_ io.Reader, size int64) (*section, error) {
		// tar.Reader does not read ahead: after Next the file stands at the
		// member's first byte.
		at, err := whole.Seek(0, io.SeekCurrent)
		if err == nil && size > whole.Size()-at {
			err = io.ErrUnexpectedEOF
		}
		return &section{r: whole, off: at, size: size}, err
	})
}

// walkNemo collects the members; keep says where the weights go.
func walkNemo(t *tar.Reader, keep func(r io.Reader, size int64) (*section, error)) (*nemoMembers, error) {
	m := &nemoMembers{small: make(map[string][]byte)}
	total := int64(0)
	for range maxNemoMembers {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err != nil {
			return nil, fmt.Errorf("tar: %w", err)
		}
		if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name := path.Clean(h.Name)
		if h.Typeflag != tar.TypeReg || isSparse(h) {
			return nil, fmt.Errorf("member %s is not a plain file", name)
		}
		if _, dup := m.small[name]; dup || name == nemoWeightsFile && m.weights != nil {
			return nil, fmt.Errorf("member %s comes twice", name)
		}
		if name == nemoWeightsFile {
			if m.weights, err = keep(t, h.Size); err != nil {
				return nil, fmt.Errorf("member %s: %w", name, err)
			}
			m.weights.name = name
			continue
		}
		if total += h.Size; h.Size > maxArtifactBytes || total > 4*maxArtifactBytes {
			return nil, fmt.Errorf("member %s has %d bytes, expected at most %d and %d in all", name, h.Size, maxArtifactBytes, 4*maxArtifactBytes)
		}
		if m.small[name], err = readLimited(t, maxArtifactBytes); err != nil {
			return nil, fmt.Errorf("member %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("more than %d members", maxNemoMembers)
}

// isSparse finds the PAX form of a sparse file, whose bytes in the archive are
// not its content.
func isSparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// unpack copies the weights to a temporary file.
func unpack(r io.Reader, c *Checkpoint) (*section, error) {
	f, err := os.CreateTemp("", "aviary-*.ckpt")
	if err != nil {
		return nil, err
	}
	c.closer.add(func() error { return errors.Join(f.Close(), os.Remove(f.Name())) })
	n, err := io.Copy(f, io.LimitReader(r, maxWeightsBytes+1))
	if err == nil && n > maxWeightsBytes {
		err = fmt.Errorf("more than %d bytes", int64(maxWeightsBytes))
	}
	return &section{r: f, size: n}, err
}

// build makes the checkpoint of the members.
func (m *nemoMembers) build(c *Checkpoint) error {
	text, ok := m.small[nemoConfigFile]
	if !ok {
		return fmt.Errorf("member %s is missing", nemoConfigFile)
	}
	if m.weights == nil {
		return fmt.Errorf("member %s is missing", nemoWeightsFile)
	}
	list, err := readTorch(*m.weights)
	if err != nil {
		return err
	}
	set, err := c.adopt(list)
	if err != nil {
		return err
	}
	s, err := deriveShapes(set)
	if err != nil {
		return fmt.Errorf("%s: %w", nemoWeightsFile, err)
	}
	config, err := parseNemoConfig(text)
	if err == nil {
		err = config.apply(&s)
	}
	if err == nil {
		c.Config, err = s.finish()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", nemoConfigFile, err)
	}
	return m.vocabulary(config, c)
}

// vocabulary finds the SentencePiece model through the configuration: an
// archive may hold another one from before a change of vocabulary.
func (m *nemoMembers) vocabulary(config *nemoConfig, c *Checkpoint) error {
	ref := or(config.Tokenizer.ModelPath.value, "")
	name, ok := strings.CutPrefix(ref, "nemo:")
	if !ok {
		return fmt.Errorf("%s: tokenizer.model_path is %q, expected \"nemo:\" and the name of a member", nemoConfigFile, ref)
	}
	name = path.Clean(name)
	data, ok := m.small[name]
	if !ok {
		return fmt.Errorf("%s: tokenizer.model_path: there is no member %s", nemoConfigFile, name)
	}
	pieces, err := readSentencePiece(data)
	if err == nil && len(pieces) != c.Config.VocabSize {
		err = fmt.Errorf("%d pieces, but the tensors are for %d", len(pieces), c.Config.VocabSize)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.Pieces = pieces
	return nil
}
