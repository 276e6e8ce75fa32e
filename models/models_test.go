package models

import (
	"io/fs"
	"testing"
)

// TestSamples: every recording is there and has words, and every audio file has a line.
func TestSamples(t *testing.T) {
	list, err := Samples()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"README.md": true, "references.tsv": true}
	for _, s := range list {
		seen[s.Name] = true
		if info, err := fs.Stat(SampleFiles(), s.Name); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", s.Name, err)
		}
		if s.Text == "" || s.Seconds <= 0 || s.Speaker == "" {
			t.Errorf("%+v", s)
		}
	}
	entries, err := fs.ReadDir(SampleFiles(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !seen[e.Name()] {
			t.Errorf("%s is in no line of references.tsv", e.Name())
		}
	}
}

// TestDigitsFitsTheProgram: the bundled weights stay small.
func TestDigitsFitsTheProgram(t *testing.T) {
	info, err := fs.Stat(Digits(), "model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 8_000_000 {
		t.Errorf("the weights take %d bytes, at most 8 MB are allowed", info.Size())
	}
}
