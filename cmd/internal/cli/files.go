package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// audioExtensions are the files that a walk through a directory takes by default. A file that is named is always taken: what it is, the
// server decides by its content.
var audioExtensions = []string{
	".wav", ".wave", ".flac", ".ogg", ".oga", ".ogv", ".opus", ".mp3", ".m4a", ".m4b", ".m4v", ".mp4", ".aac", ".webm", ".mkv", ".mka", ".mov",
	".aif", ".aiff", ".aifc", ".au", ".snd", ".caf", ".w64", ".rf64", ".3gp", ".3g2", ".wma", ".wmv", ".asf", ".wv", ".ac3", ".mp2", ".m2ts", ".avi", ".amr", ".flv",
}

// source is a file to transcribe.
type source struct {
	path string // to open it
	name string // relative to the directory that was walked, with slashes
}

// walk lists the files under dir in a stable order, and the directories that it could not read. include and exclude are patterns of
// path.Match on the relative name or on its last element; without include, the extension decides. Files and directories whose names
// begin with a dot are left out. dir itself may be a link; links below it are followed to files only.
func walk(dir string, include, exclude []string) (found []source, unread []error, err error) {
	for _, p := range slices.Concat(include, exclude) {
		if _, err := path.Match(p, "x"); err != nil {
			return nil, nil, usageError(fmt.Errorf("pattern %q: %w", p, err))
		}
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, nil, err
	}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			unread = append(unread, err)
			return nil // the others are still wanted
		}
		hidden := strings.HasPrefix(d.Name(), ".") && file != dir
		switch {
		case d.IsDir() && hidden:
			return filepath.SkipDir
		case d.IsDir() || hidden:
			return nil
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		wanted := slices.Contains(audioExtensions, strings.ToLower(path.Ext(name)))
		if len(include) > 0 {
			wanted = matches(include, name)
		}
		if info, err := os.Stat(file); !wanted || matches(exclude, name) || err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // a link to nowhere or a device is not a recording
		}
		found = append(found, source{path: file, name: name})
		return nil
	})
	return found, unread, err
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		whole, _ := path.Match(p, name)
		last, _ := path.Match(p, path.Base(name))
		return whole || last
	})
}

// outputStems gives each source the name of its outputs without the format's extension: talk.flac becomes talk. A source keeps its extension
// when its stem is that of another one, or another one's whole name: whole names are unique, so no two sources write to the same file.
func outputStems(sources []source) map[string]string {
	taken := map[string]int{}
	for _, s := range sources {
		whole, short := strings.ToLower(s.name), strings.ToLower(stem(s.name))
		taken[short]++
		if whole != short {
			taken[whole]++
		}
	}
	stems := make(map[string]string, len(sources))
	for _, s := range sources {
		stems[s.name] = stem(s.name)
		if taken[strings.ToLower(stem(s.name))] > 1 {
			stems[s.name] = s.name
		}
	}
	return stems
}

func stem(name string) string { return strings.TrimSuffix(name, path.Ext(name)) }

// openRegular opens a file for reading. What is no file is refused before it is opened: opening a pipe would wait for its writer.
func openRegular(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return nil, usageError(fmt.Errorf("%s is a directory; bulk takes those", name))
	case !info.Mode().IsRegular():
		return nil, usageError(fmt.Errorf("%s is not a file", name))
	}
	return os.Open(name)
}

// hashFile is the SHA-256 of a file, in hex.
func hashFile(name string) (string, error) {
	f, err := openRegular(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // read only
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeFile writes whole files only: under a temporary name first, then renamed. It makes the directory.
func writeFile(name string, content []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".aviary-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
