package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
	"github.com/aviary-asr/aviary/asr/parakeet"
)

// TestWrite writes the tiny shape in every format and type, opens and loads it: the strict loader accepts it, the weights are those that
// were drawn, and bfloat16 ones are float32 ones rounded.
func TestWrite(t *testing.T) {
	var first []float32
	for _, args := range [][]string{
		{"-format", "hf"}, {"-format", "nemo"}, {"-format", "hf", "-dtype", "bfloat16"}, {"-format", "nemo", "-dtype", "bfloat16"},
	} {
		var out bytes.Buffer
		if err := run(append(args, "-shape", "tiny", "-o", t.TempDir()+"/new"), &out, io.Discard); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		path, count, _ := strings.Cut(out.String(), "\n")
		if !strings.Contains(count, " tensors, ") {
			t.Errorf("%v: says %q", args, out.String())
		}
		c, err := checkpoint.Open(path)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		defer c.Close() // read only
		b := cpu.New(cpu.Options{Threads: 1})
		defer b.Close()
		m, err := parakeet.Load(c.Config, c.Tensors, b, ml.Float32)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		m.Close()
		got := make([]float32, 32*32)
		if err := c.Tensors.Float32("encoder.layers.1.self_attn.q_proj.weight", got); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		want := first
		if slices.Contains(args, "bfloat16") {
			want = slices.Clone(first)
			for i, v := range want {
				want[i] = ml.WidenBFloat16(ml.RoundBFloat16(v))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: other weights", args)
		}
	}
}

func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"-shape":     {"-shape", "huge", "-o", "x"},
		"-dtype":     {"-dtype", "int3", "-o", "x"},
		"-format":    {"-format", "onnx", "-o", "x"},
		"-o is":      {"-shape", "tiny"},
		"unexpected": {"-shape", "tiny", "-o", "x", "more"},
	} {
		if err := run(args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want a word on %s", args, err, want)
		}
	}
}
