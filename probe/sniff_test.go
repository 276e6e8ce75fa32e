package probe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary"
)

func TestForeignFilesAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, want string }{
		{"FORM\x00\x00\x00\x00ILBM", "which no known audio format does"},
		{"RIFF\x00\x00\x00\x00WEBPVP8 ", "a WebP image, not like a recording"},
		{"ID3\x04\x00\x00\x00\x00\x00\x02ab\xff\xfb\x90\x64\x00", "starts with fffb906400, which no known audio format does"},
		{"\xff\xf1\x50\x80\x00\x1f\xfc", "which no known audio format does"},
		{"\xff\xfb\xfc\x64", "which no known audio format does"},
		{"\x0b\x77\x00\x00", "a raw AC-3 file"},
		{"MThd\x00\x00\x00\x06", "a MIDI file"},
		{strings.Repeat("\x01", 1080) + "M.K.", "a tracker module"},
		{"PK\x03\x04", "a ZIP archive"},
		{"\x1f\x8b\x08\x00", "a gzip archive"},
		{"\x89PNG\r\n\x1a\n", "a PNG image"},
		{"\xff\xd8\xff\xe0", "a JPEG image"},
		{"%PDF-1.7\n%\xe2\xe3", "a PDF document"},
		{"\n <!DOCTYPE HTML><title>404</title>", "an HTML page"},
		{"\xef\xbb\xbf<html lang=en>", "an HTML page"},
		{"<?xml version=\"1.0\"?>", "an XML document"},
		{"{\"error\": \"not found\"}", "a JSON document"},
		{"#EXTM3U\n#EXT-X-VERSION:3", "a playlist"},
		{"ffconcat version 1.0\nfile x", "a concatenation script"},
		{"v=0\r\no=- 0 0 IN IP4 127.0.0.1", "a session description"},
		{"Sehr geehrte Damen und Herren, schöne Grüße", "text, not like a recording"},
		{strings.Repeat("x", headBytes-1) + "ü and more", "text"},
		{strings.Repeat("\x00", 5000), "4096 zero bytes"},
		{"\x00", "1 zero bytes"},
		{"\x01\x02\x03", "starts with 010203"},
		{"RIFF", "text"},
		{"RIFF\x01\x00\x00\x00WAV", "starts with 52494646"},
		{"fLa", "text"},
	} {
		_, err := New(Config{}).Probe(t.Context(), strings.NewReader(c.file), int64(len(c.file)))
		if aviary.CodeOf(err) != aviary.CodeMediaTypeUnsupported || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: %v; want %q", c.file, err, c.want)
		}
		if p := aviary.ProblemOf(err); !strings.Contains(p.Hint, "FLAC") {
			t.Errorf("%.20q: the hint is %q", c.file, p.Hint)
		}
	}
}

func TestNothingAtAll(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, -1} {
		_, err := New(Config{}).Probe(t.Context(), bytes.NewReader(nil), size)
		if aviary.CodeOf(err) != aviary.CodeAudioBroken || !strings.Contains(err.Error(), "empty") {
			t.Errorf("size %d: %v", size, err)
		}
	}
}
