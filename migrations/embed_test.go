package migrations

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var fileName = regexp.MustCompile(`^(\d{5})_[a-z0-9_]+\.sql$`)

func TestFilesAreNumberedAndGoForward(t *testing.T) {
	dialects, err := fs.ReadDir(Files, ".")
	if err != nil {
		t.Fatal(err)
	}
	if len(dialects) != 2 {
		t.Fatalf("%d dialects are embedded, want two", len(dialects))
	}
	names := map[string][]string{}
	for _, dialect := range dialects {
		t.Run(dialect.Name(), func(t *testing.T) {
			files, err := fs.ReadDir(Files, dialect.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				names[dialect.Name()] = append(names[dialect.Name()], f.Name())
			}
			for i, f := range files {
				m := fileName.FindStringSubmatch(f.Name())
				if m == nil {
					t.Fatalf("%s is not named NNNNN_what.sql", f.Name())
				}
				if want := fmt.Sprintf("%05d", i+1); m[1] != want {
					t.Errorf("%s should carry the number %s: numbers have no gap and no double", f.Name(), want)
				}
				body, err := fs.ReadFile(Files, dialect.Name()+"/"+f.Name())
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(body), "\n-- +goose Up\n") {
					t.Errorf("%s has no line -- +goose Up", f.Name())
				}
				if strings.Contains(string(body), "+goose Down") {
					t.Errorf("%s goes backward: that would drop accepted jobs", f.Name())
				}
			}
		})
	}
	if !slices.Equal(names["sqlite"], names["postgres"]) {
		t.Errorf("the dialects have different files, and a version of the schema a different meaning: %v", names)
	}
}
