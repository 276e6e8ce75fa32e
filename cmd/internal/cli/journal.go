package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"unicode/utf8"
)

// journal remembers, in the output directory, which job belongs to which input, so that a run of bulk can be repeated: what is done is
// skipped, what was submitted is waited for and not submitted again. It is a file of JSON lines; the last line of a name counts.
type journal struct {
	mu      sync.Mutex
	file    *os.File
	entries map[string]journalEntry
}

// journalName is the journal's place in the output directory.
const journalName = ".aviary-bulk.jsonl"

// journalKey is a file's name as JSON can hold it: one that is no UTF-8 is quoted, behind a byte that no file name has.
func journalKey(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return "\x00" + strconv.Quote(name)
}

// journalEntry is one line: what was known of an input when something happened to it.
type journalEntry struct {
	Name    string `json:"name"`
	SHA256  string `json:"sha256"`
	Options string `json:"options"` // what was asked for, in one string
	Server  string `json:"server"`
	// Key is what the submission is named by. An entry with a key and without a job is a submission whose answer was never read: sent again under its
	// key, it makes no second job.
	Key  string `json:"key,omitempty"`
	Job  string `json:"job"`
	Done bool   `json:"done"` // all outputs were written
}

// openJournal reads what is there and opens it for more.
func openJournal(dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	j, err := readJournal(dir)
	if err != nil {
		return nil, err
	}
	if j.file, err = os.OpenFile(filepath.Join(dir, journalName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	// What a crash cut off must not swallow the next line. Empty lines are no entries.
	if _, err := j.file.WriteString("\n"); err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	return j, nil
}

// last is the newest entry of a name.
func (j *journal) last(name string) (journalEntry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[journalKey(name)]
	return e, ok
}

// record appends an entry.
func (j *journal) record(e journalEntry) error {
	e.Name = journalKey(e.Name)
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return err
	}
	j.entries[e.Name] = e
	return nil
}

func (j *journal) close() error { return errors.Join(j.file.Sync(), j.file.Close()) }

// readJournal is for looking only: it makes nothing.
func readJournal(dir string) (*journal, error) {
	j := &journal{entries: map[string]journalEntry{}}
	old, err := os.ReadFile(filepath.Join(dir, journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	return j, j.parse(old)
}

// parse takes the lines of a journal. A last line that a crash cut off is ignored.
func (j *journal) parse(lines []byte) error {
	scanner := bufio.NewScanner(bytes.NewReader(lines))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var e journalEntry
		if json.Unmarshal(scanner.Bytes(), &e) == nil && e.Name != "" {
			j.entries[e.Name] = e
		}
	}
	return scanner.Err()
}
