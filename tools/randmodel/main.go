// Command randmodel writes a checkpoint with random weights in the shape of a published model, in either of the formats that the
// engine reads: for measuring speed and memory, and for trying the loaders, where the real weights cannot be had.
//
//	go run ./tools/randmodel -shape parakeet-tdt-0.6b-v3 -format nemo -o v3
//
// The same shape, seed and type give the same bytes. What such a model transcribes is noise, at about the rate of speech.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/checkpoint/checkpointtest"
	"github.com/aviary-asr/aviary/asr/parakeet/parakeettest"
)

// shapes that can be written.
var shapes = map[string]func() checkpoint.Config{
	"parakeet-tdt-0.6b-v3": checkpointtest.ParakeetTDT06BV3,
	"tiny":                 parakeettest.Tiny,
}

var dtypes = map[string]checkpoint.DType{"float32": checkpoint.F32, "bfloat16": checkpoint.BF16}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "randmodel:", err)
		os.Exit(1)
	}
}

// run writes one checkpoint and says on out where it is.
func run(args []string, out, usage io.Writer) error {
	flags := flag.NewFlagSet("randmodel", flag.ContinueOnError)
	flags.SetOutput(usage)
	shape := flags.String("shape", "parakeet-tdt-0.6b-v3", "parakeet-tdt-0.6b-v3 or tiny")
	format := flags.String("format", "hf", "hf (a Hugging Face directory) or nemo")
	dtype := flags.String("dtype", "float32", "float32 or bfloat16, of the stored weights")
	seed := flags.Uint("seed", 1, "seed of the generator")
	dir := flags.String("o", "", "directory to write to; made if it is not there")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, known := shapes[*shape]
	stored, valid := dtypes[*dtype]
	switch {
	case !known:
		return fmt.Errorf("-shape %q is not known", *shape)
	case !valid:
		return fmt.Errorf("-dtype %q is neither float32 nor bfloat16", *dtype)
	case !slices.Contains([]string{"hf", "nemo"}, *format):
		return fmt.Errorf("-format %q is neither hf nor nemo", *format)
	case *dir == "":
		return errors.New("-o is missing: where to write")
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	m := parakeettest.Model(config(), stored, uint32(*seed))
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	path, err := write(*dir, *shape, *format, m)
	if err != nil {
		return err
	}
	elements := 0
	for _, t := range m.Tensors {
		elements += t.Elements()
	}
	_, err = fmt.Fprintf(out, "%s\n%d tensors, %d elements\n", path, len(m.Tensors), elements)
	return err
}

// write writes m and returns the path that the engine opens.
func write(dir, name, format string, m checkpointtest.Model) (string, error) {
	if format == "hf" {
		return dir, checkpointtest.WriteHuggingFace(dir, m)
	}
	path := filepath.Join(dir, name+".nemo")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	return path, errors.Join(checkpointtest.WriteNemo(f, m), f.Close())
}
