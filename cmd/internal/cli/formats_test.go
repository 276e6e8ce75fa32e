package cli_test

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr/wer"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
	"github.com/aviary-asr/aviary/probe/probetest"
)

// byFFmpeg are the recordings of testdata/speech that only ffmpeg decodes.
var byFFmpeg = []string{"aac.m4a", "adts.aac", "alac.m4a", "fragmented.mp4", "gsm.wav", "media.wma", "stream.ts", "video.mp4"}

// Speech becomes the same text in whatever format it is sent: through the API, the intake, the queue, the worker and the engine.
func TestSpeechInEveryFormat(t *testing.T) {
	t.Parallel()
	const said, seconds = "three eight eight two", 2.9
	_, err := exec.LookPath("ffmpeg")
	withFFmpeg := err == nil
	if !withFFmpeg && os.Getenv("AVIARY_TEST_REQUIRE_FFMPEG") != "" {
		t.Fatal(err)
	}
	_, client := start(t, t.TempDir(), nil)
	files, err := filepath.Glob(filepath.Join("testdata", "speech", "*.*"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	ids := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, ".md") || !withFFmpeg && slices.Contains(byFFmpeg, name) {
			continue
		}
		audio, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = submit(t, client, name, audio).ID
	}
	for name, id := range ids {
		job, err := client.Wait(t.Context(), id, nil)
		if err != nil || job.Status != aviary.StateSucceeded {
			t.Errorf("%s: %s %+v, %v", name, job.Status, job.Error, err)
			continue
		}
		got, err := client.Transcript(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		allowed := 0.0
		if name == "gsm.wav" {
			allowed = 25 // one word of four: 13 kbit/s at 8 kHz take their toll
		}
		if score := wer.Texts(said, got.Text); score.Percent() > allowed || math.Abs(job.Audio.DurationSeconds-seconds) > 0.1 || len(job.Audio.Warnings) > 0 {
			t.Errorf("%s (%s, %s): %q, %.3f s, warnings %q", name, job.Audio.Container, job.Audio.Codec, got.Text, job.Audio.DurationSeconds, job.Audio.Warnings)
		}
	}
}

// Without ffmpeg its formats are refused with a hint, and the server says so.
func TestWithoutFFmpeg(t *testing.T) {
	t.Parallel()
	_, client := start(t, t.TempDir(), func(s *cli.Settings) { s.FFmpeg = "off" })
	for _, name := range byFFmpeg {
		audio, err := os.ReadFile(filepath.Join("testdata", "speech", name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Submit(t.Context(), upload(name, audio))
		if problem := aviary.ProblemOf(err); problem.Code != aviary.CodeMediaTypeUnsupported || !strings.Contains(problem.Detail, "ffmpeg") || problem.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	capacity, err := client.Capacity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if capacity.Limits.AudioSeconds != 3600 || capacity.Limits.Decodes < 1 {
		t.Errorf("limits %+v", capacity.Limits)
	}
	for _, f := range capacity.Formats {
		if f.Available != (f.Decoder == "built in") {
			t.Errorf("%+v", f)
		}
	}
}

// handedFiles is where the files are that package probe is held to.
const handedFiles = "../../../probe/testdata"

// aviary probe answers to the handed files as the library does: what a server would.
func TestProbeHandedFiles(t *testing.T) {
	t.Parallel()
	cases := probetest.Cases(t, handedFiles)
	// Hours of audio that are accepted are decoded to their end, in the library's test of these files; here they would show nothing more.
	cases = slices.DeleteFunc(cases, func(c probetest.Case) bool { return c.Truth > 600 && len(c.Accept) > 0 })
	args := []string{"probe", "--json"}
	for _, c := range cases {
		args = append(args, filepath.Join(handedFiles, c.Name))
	}
	code, out, errs := run(t, "", args...)
	if code != 4 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var results []struct {
		File    string
		Seconds float64 `json:"true_seconds"`
		Verdict aviary.Code
		Error   aviary.Problem
	}
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != len(cases) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, c := range cases {
		r := results[i]
		if strings.Contains(r.Error.Detail, "this server has none") {
			continue
		}
		if r.Verdict == "accepted" {
			r.Verdict = ""
		}
		d, _ := aviary.Seconds(r.Seconds)
		if err := c.Judge(r.Verdict, d); err != nil || filepath.Base(r.File) != c.Name {
			t.Errorf("%s: %v (%s)", r.File, err, r.Error.Detail)
		}
	}
}
