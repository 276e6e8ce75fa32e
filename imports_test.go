package aviary_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/aviary-asr/aviary"

// mayImport says which packages of the module a package may import, by the first matching prefix. "" is the root package. A package
// under cmd may import everything. See "Who may import whom" in DECISIONS.md.
var mayImport = []struct {
	pkg     string
	imports []string
	reason  string
}{
	{"cmd", []string{"*"}, "cmd wires all parts"},
	{"tools", []string{"*"}, "tools serve developers"},
	{"loadtest", []string{"", "api", "asr/wer"}, "the load test is a client"},
	{"api", []string{""}, "technologies meet in cmd, never each other"},
	{"queue", []string{""}, "technologies meet in cmd, never each other"},
	{"store", []string{"", "migrations", "store"}, "technologies meet in cmd, never each other"},
	{"probe", []string{"", "probe"}, "technologies meet in cmd, never each other"},
	{"migrations", nil, "migrations are files"},
	{"models", nil, "models are files"},
	{"gpu/cuda", []string{"asr/ml"}, "a backend knows operations, not models"},
	{"gpu", []string{"", "asr", "asr/ml"}, "devices run engines"},
	{"asr/parakeet/parakeettest", []string{"asr/ml", "asr/checkpoint", "asr/checkpoint/checkpointtest", "asr/parakeet"}, "it makes models for tests"},
	{"asr/parakeet", []string{"asr/ml", "asr/checkpoint"}, "the model knows operations and weights, not backends"},
	{"asr/ml/cpu", []string{"asr/ml"}, "a backend knows operations, not models"},
	{"asr/ml/mltest", []string{"asr/ml"}, "the suite knows operations, not models"},
	{"asr/ml", nil, "the bottom of the engine"},
	{"asr/logmel", nil, "the bottom of the engine"},
	{"asr/checkpoint", []string{"asr/checkpoint"}, "the bottom of the engine"},
	{"asr/vocab", nil, "the bottom of the engine"},
	{"asr/wer", nil, "the bottom of the engine"},
	{"asr", []string{"", "asr/logmel", "asr/parakeet", "asr/checkpoint", "asr/vocab", "asr/ml"}, "the engine is handed its backend"},
	{"", nil, "the domain knows nothing around it"},
}

// doors lists the outside packages and the only places that may open them.
var doors = []struct {
	outside string
	places  []string
}{
	{"github.com/hibiken/asynq", []string{"queue"}},
	{"github.com/redis/go-redis", []string{"queue"}},
	{"github.com/alicebob/miniredis", []string{"queue"}},
	{"modernc.org/sqlite", []string{"store"}},
	{"github.com/jackc/pgx", []string{"store"}},
	{"github.com/pressly/goose", []string{"store"}},
	{"github.com/spf13/", []string{"cmd"}},
	{"github.com/vbauerster/mpb", []string{"cmd"}},
	{"golang.org/x/term", []string{"cmd"}},
	{"github.com/prometheus/", []string{"api", "cmd"}},
	{"github.com/go-audio/", []string{"probe"}},
	{"github.com/mewkiz/flac", []string{"probe"}},
	{"github.com/pion/opus", []string{"probe"}},
	{"github.com/jfreymuth/vorbis", []string{"probe"}},
	{"github.com/oklog/ulid", []string{"cmd"}},
	{"go.yaml.in/yaml", []string{"asr/checkpoint", "tools"}},
	{"golang.org/x/sys", []string{"store", "probe", "queue", "cmd", "gpu/cuda", "asr/ml/cpu"}},
	{"golang.org/x/sync", []string{"api", "cmd", "queue", "store", "asr/ml/cpu"}},
	{"go.uber.org/goleak", []string{"store/storetest"}},
	{"unsafe", []string{"gpu/cuda", "asr/ml/cpu"}},
	{"C", []string{"gpu/cuda"}},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func local(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func within(pkg, place string) bool { return pkg == place || strings.HasPrefix(pkg, place+"/") }

func TestImportsFollowTheLayout(t *testing.T) {
	for _, p := range listPackages(t) {
		pkg, _ := local(p.ImportPath)
		rule := slices.IndexFunc(mayImport, func(r struct {
			pkg     string
			imports []string
			reason  string
		}) bool {
			return within(pkg, r.pkg) || r.pkg == "" && pkg == ""
		})
		if rule < 0 {
			t.Errorf("package %q has no line in mayImport: decide where it stands", pkg)
			continue
		}
		for _, imp := range p.Imports {
			if inner, ok := local(imp); ok {
				allowed := mayImport[rule].imports
				fine := slices.ContainsFunc(allowed, func(a string) bool { return a == "*" || a == inner || a != "" && within(inner, a) && a == rootOf(a) })
				if !fine {
					t.Errorf("%s imports %s: not allowed, since %s", p.ImportPath, imp, mayImport[rule].reason)
				}
				continue
			}
			checkDoors(t, pkg, imp)
		}
	}
}

// rootOf is the first element of a package path: a rule that names a top-level folder allows its subpackages too, but "asr" means the
// engine alone.
func rootOf(pkg string) string {
	if pkg == "asr" {
		return ""
	}
	first, _, _ := strings.Cut(pkg, "/")
	return first
}

func checkDoors(t *testing.T, pkg, imp string) {
	t.Helper()
	for _, d := range doors {
		if imp != d.outside && !strings.HasPrefix(imp, d.outside) || imp != d.outside && d.outside == "C" {
			continue
		}
		if d.outside == "unsafe" && imp != "unsafe" {
			continue
		}
		if !slices.ContainsFunc(d.places, func(place string) bool { return within(pkg, place) }) {
			t.Errorf("%s imports %s: only %v may", pkg, imp, d.places)
		}
		return
	}
	if strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
		t.Errorf("%s imports %s, which has no line in doors: decide who may", pkg, imp)
	}
}
