// Package models holds the checkpoint that is part of the program: a small Parakeet that recognizes strings of English digits, and
// recordings of people to try it on. It holds files and knows nothing about them; asr/checkpoint opens the model.
//
// The recordings, and the data that the model was trained on, are under CC BY-SA 4.0: see digits/samples/README.md.
package models

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed digits/*.json digits/model.safetensors digits/samples
var files embed.FS

// DigitsName is the bundled model's name.
const DigitsName = "digits"

// Digits is the bundled checkpoint as a Hugging Face directory.
func Digits() fs.FS { return sub("digits") }

// SampleFiles has the recordings that Samples lists.
func SampleFiles() fs.FS { return sub("digits/samples") }

func sub(dir string) fs.FS {
	s, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // the path is a constant
	}
	return s
}

// Sample is a recording with what is said in it.
type Sample struct {
	Name    string  // of the file in SampleFiles
	Seconds float64 // exact length
	Text    string
	Speaker string
}

// Samples lists the recordings.
func Samples() ([]Sample, error) {
	const table = "references.tsv"
	raw, err := fs.ReadFile(SampleFiles(), table)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	var list []Sample
	for i, line := range lines[1:] { // after the headings
		fields := strings.Split(line, "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("%s: line %d has %d fields, expected 4", table, i+2, len(fields))
		}
		seconds, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", table, i+2, err)
		}
		list = append(list, Sample{Name: fields[0], Seconds: seconds, Text: fields[2], Speaker: fields[3]})
	}
	return list, nil
}
