//go:build unix

package chaos

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// replacement takes a piece of a file out of the program. The piece must be there, once.
type replacement struct{ file, old, with string }

// TestAblations takes one mechanism at a time out of the program, and wants the test that is about it to fail: a suite that passes without the mechanism is blind.
func TestAblations(t *testing.T) {
	long(t, "it builds the program anew for each mechanism")
	for _, tt := range ablations {
		t.Run(tt.name, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "ablated")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay(t, tt.without), "-o", binary, ".")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			// A fault of chance may be missed once.
			for range 3 {
				run := exec.CommandContext(t.Context(), binary, "-test.run", "^"+tt.test+"$", "-test.timeout", "5m")
				run.Env = append(os.Environ(), chaosVariable+"="+tt.chaos)
				out, err := run.CombinedOutput()
				if err != nil && strings.Contains(string(out), "--- FAIL: "+strings.Split(tt.test, "/")[0]) {
					t.Logf("seen by %s: %s", tt.test, firstComplaint(string(out)))
					return
				}
				if err != nil {
					t.Fatalf("it did not fail as a test does: %v\n%s", err, out)
				}
				if strings.Contains(string(out), "SKIP") {
					t.Skip("what the test needs is not here")
				}
			}
			t.Errorf("%s passes without it", tt.test)
		})
	}
}

// firstComplaint is the first line that a failed test has written by itself.
func firstComplaint(out string) string {
	for text := range strings.Lines(out) {
		if strings.Contains(text, "_test.go:") {
			return strings.TrimSpace(text)
		}
	}
	return "?"
}

// overlay writes the changed copies, and the file that names them to the go command.
func overlay(t *testing.T, list []replacement) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	replace := map[string]string{}
	for i, r := range list {
		name := filepath.Join(root, filepath.FromSlash(r.file))
		source := name
		if earlier := replace[name]; earlier != "" {
			source = earlier
		}
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), r.old); n != 1 {
			t.Fatalf("%s has the piece to be taken out %d times: bring this test up to date\n%s", r.file, n, r.old)
		}
		copied := filepath.Join(folder, string(rune('a'+i))+".go")
		if err := os.WriteFile(copied, []byte(strings.Replace(string(text), r.old, r.with, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[name] = copied
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestOverlaysFit checks at each change that the pieces are still there.
func TestOverlaysFit(t *testing.T) {
	t.Parallel()
	for _, tt := range ablations {
		t.Run(tt.name, func(t *testing.T) { overlay(t, tt.without) })
	}
}
