package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aviary-asr/aviary"
)

func TestOutputStemsAreUnique(t *testing.T) {
	tests := []struct {
		names []string
		want  []string
	}{
		{[]string{"a.wav", "b.flac"}, []string{"a", "b"}},
		{[]string{"a.wav", "a.flac"}, []string{"a.wav", "a.flac"}},
		{[]string{"talk.wav", "talk.flac", "talk.wav.flac"}, []string{"talk.wav", "talk.flac", "talk.wav.flac"}},
		{[]string{"talk.wav", "talk.wav.flac"}, []string{"talk", "talk.wav.flac"}},
		{[]string{"talk", "talk.wav"}, []string{"talk", "talk.wav"}},
		{[]string{"A.wav", "a.flac"}, []string{"A.wav", "a.flac"}}, // some file systems do not tell them apart
		{[]string{"x/a.wav", "y/a.wav"}, []string{"x/a", "y/a"}},
	}
	for _, tt := range tests {
		var sources []source
		for _, n := range tt.names {
			sources = append(sources, source{name: n})
		}
		stems := outputStems(sources)
		var got []string
		for _, n := range tt.names {
			got = append(got, stems[n])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: stems %q, want %q", tt.names, got, tt.want)
		}
	}
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.wav", "B.FLAC", "notes.txt", ".hidden.wav", ".git/c.wav", "sub/d.ogg", "sub/n\nl.wav", "sub/b\xff.wav"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(dir, link), os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "gone.wav")),
		os.Symlink(dir, filepath.Join(dir, "sub", "loop"))); err != nil {
		t.Fatal(err)
	}
	all := []string{"B.FLAC", "a.wav", "sub/b\xff.wav", "sub/d.ogg", "sub/n\nl.wav"}
	for _, tt := range []struct {
		dir              string
		include, exclude []string
		want             []string
	}{
		{dir, nil, nil, all},
		{link, nil, nil, all},
		{dir, []string{"*.txt"}, nil, []string{"notes.txt"}},
		{dir, []string{"sub/*.ogg", "a.*"}, nil, []string{"a.wav", "sub/d.ogg"}},
		{dir, nil, []string{"sub/*", "*.FLAC"}, []string{"a.wav"}},
	} {
		found, unread, err := walk(tt.dir, tt.include, tt.exclude)
		if err != nil || len(unread) > 0 {
			t.Fatal(err, unread)
		}
		var got []string
		for _, s := range found {
			got = append(got, s.name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q without %q: %q, want %q", tt.include, tt.exclude, got, tt.want)
		}
	}
	if _, _, err := walk(dir, []string{"["}, nil); exitCode(err) != exitUsage {
		t.Errorf("a bad pattern: %v", err)
	}
}

// TestWalkGoesOnAfterADirectoryItCannotRead needs a user whom permissions bind.
func TestWalkGoesOnAfterADirectoryItCannotRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root can read everything")
	}
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "closed"), 0), os.WriteFile(filepath.Join(dir, "z.wav"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	found, unread, err := walk(dir, nil, nil)
	if err != nil || len(found) != 1 || len(unread) != 1 {
		t.Errorf("found %v, unread %v, %v", found, unread, err)
	}
}

func TestJournalKeepsNamesThatAreNoText(t *testing.T) {
	dir := t.TempDir()
	names := []string{"größe.wav", "b\xff\xfe.wav", "b\xff.wav", "n\nl.wav"}
	j, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		if err := j.record(journalEntry{Name: n, Job: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.file.WriteString(`{"name":"cut off by a cra`); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if j, err = openJournal(dir); err != nil {
		t.Fatal(err)
	}
	defer j.close()
	if err := j.record(journalEntry{Name: "after.wav", Job: "9"}); err != nil {
		t.Fatal(err)
	}
	again, err := readJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		if e, ok := again.last(n); !ok || e.Job != fmt.Sprint(i) {
			t.Errorf("%q: %+v, %v", n, e, ok)
		}
	}
	if e, ok := again.last("after.wav"); !ok || e.Job != "9" {
		t.Errorf("the line after the cut one: %+v, %v", e, ok)
	}
}

func TestStatusOfError(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	refused := aviary.Errorf(aviary.CodeAudioBroken, "", "")
	lost := &fs.PathError{Op: "open", Err: fs.ErrNotExist}
	if got := statusOfError(ctx, refused, "refused"); got != "refused" {
		t.Errorf("a refusal is %s", got)
	}
	if got := statusOfError(ctx, lost, "refused"); got != "failed" {
		t.Errorf("a file that is gone is %s", got)
	}
	cancel(errSignal{os.Interrupt})
	for _, err := range []error{context.Canceled, fmt.Errorf("GET: %w", context.Cause(ctx))} {
		if got := statusOfError(ctx, err, "failed"); got != "interrupted" {
			t.Errorf("%v is %s", err, got)
		}
	}
	if got := statusOfError(ctx, refused, "refused"); got != "refused" {
		t.Errorf("a refusal at the end is %s", got)
	}
}

func TestDisplayName(t *testing.T) {
	for name, want := range map[string]string{"größe.wav": "größe.wav", "a\nb\x1b[31m\xff": "a b\uFFFD[31m\uFFFD"} {
		if got := displayName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
