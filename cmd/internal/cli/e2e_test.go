package cli_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
	"github.com/aviary-asr/aviary/asr/wer"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
	"github.com/aviary-asr/aviary/models"
)

// The tests here run the system as `aviary serve` does: the real API, queue, store, worker and engine, on port 0 and a directory of the test.

// backends is the CPU, as in cmd/aviary.
var backends = []cli.Backend{{
	Name:        "cpu",
	Devices:     func() ([]string, error) { return []string{"cpu"}, nil },
	Open:        func(string) (ml.Backend, error) { return cpu.New(cpu.Options{}), nil },
	BFloat16:    func(string) bool { return false },
	MemoryBytes: func(string) (int64, error) { return 0, nil },
	HostMemory:  true,
}}

// program is the binary that tests run.
var program = cli.Program{Backends: backends}

// start runs a system on dir and stops it with the test.
func start(t *testing.T, dir string, change func(*cli.Settings)) (*cli.System, *api.Client) {
	t.Helper()
	return startProgram(t, program, dir, change)
}

// startProgram is start for another binary.
func startProgram(t *testing.T, program cli.Program, dir string, change func(*cli.Settings)) (*cli.System, *api.Client) {
	t.Helper()
	s := cli.DefaultSettings()
	s.DataDir, s.Listen, s.MetricsListen = dir, "127.0.0.1:0", ""
	if change != nil {
		change(&s)
	}
	system, err := program.Start(t.Context(), cli.RoleAll, s, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, system) })
	client, err := api.NewClient(api.ClientConfig{Server: system.URL()})
	if err != nil {
		t.Fatal(err)
	}
	return system, client
}

func stop(t *testing.T, system *cli.System) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := system.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func sample(t *testing.T, name string) []byte {
	t.Helper()
	b, err := fs.ReadFile(models.SampleFiles(), name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func submit(t *testing.T, c *api.Client, name string, audio []byte) api.Job {
	t.Helper()
	job, err := c.Submit(t.Context(), upload(name, audio))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return job
}

func upload(name string, audio []byte) api.Upload {
	return api.Upload{Body: bytes.NewReader(audio), Size: int64(len(audio)), Options: aviary.Options{Name: name}}
}

// TestSpeechBecomesText is the main promise: real speech, WAV and FLAC, goes in over HTTP, and the right text comes out, with full attention
// for what is short and local attention for what is long.
func TestSpeechBecomesText(t *testing.T) {
	threshold := cli.DefaultSettings().Attention.Threshold
	if underRace {
		threshold = 10 * time.Second
	}
	_, client := start(t, t.TempDir(), func(s *cli.Settings) { s.Attention.Threshold = threshold })
	samples, err := models.Samples()
	if err != nil {
		t.Fatal(err)
	}
	if underRace {
		samples = slices.DeleteFunc(samples, func(s models.Sample) bool { return s.Seconds > 300 })
	}
	ids := make([]string, len(samples))
	for i, s := range samples {
		ids[i] = submit(t, client, s.Name, sample(t, s.Name)).ID
	}
	var total wer.Counts
	for i, s := range samples {
		job, err := client.Wait(t.Context(), ids[i], nil)
		if err != nil || job.Status != aviary.StateSucceeded {
			t.Fatalf("%s: %s %+v, %v", s.Name, job.Status, job.Error, err)
		}
		got, err := client.Transcript(t.Context(), ids[i])
		if err != nil {
			t.Fatal(err)
		}
		score := wer.Texts(s.Text, got.Text)
		total.Add(score)
		t.Logf("%s: %.1f %% WER, %s attention, RTFx %.1f", s.Name, score.Percent(), got.Engine.Attention.Mode, got.Usage.RTFx)
		want := aviary.AttentionFull
		if s.Seconds >= threshold.Seconds() {
			want = aviary.AttentionLocal
		}
		if got.Engine.Attention.Mode != want || job.Attention == nil || job.Attention.Mode != want {
			t.Errorf("%s of %.0f s ran with %+v, want %s", s.Name, s.Seconds, got.Engine.Attention, want)
		}
		checkTimes(t, got, s.Seconds)
	}
	if total.Percent() > 3 {
		t.Errorf("WER %.2f %% over %d words", total.Percent(), total.Words)
	}
}

// checkTimes holds words and segments to order and to the audio.
func checkTimes(t *testing.T, got aviary.Transcript, length float64) {
	t.Helper()
	last := 0.0
	var words []string
	for _, s := range got.Segments {
		for _, w := range s.Words {
			if w.Start < last || w.End < w.Start || w.End > length+0.001 {
				t.Errorf("the word %+v follows %.3f in %.3f s of audio", w, last, length)
			}
			last = w.Start
			words = append(words, w.Word)
		}
	}
	if strings.Join(words, " ") != got.Text {
		t.Errorf("the words %q are not the text %q", words, got.Text)
	}
}

func TestRefusalsLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, client := start(t, dir, func(s *cli.Settings) { s.MaxDuration = 5 * time.Second })
	tests := []struct {
		name  string
		audio []byte
		want  aviary.Code
	}{
		{"longer than the guard", sample(t, "jackson-7-16k.wav"), aviary.CodeAudioTooLong},
		{"text", []byte("these are no samples"), aviary.CodeMediaTypeUnsupported},
		{"half a header", sample(t, "jackson-7-16k.wav")[:20], aviary.CodeAudioBroken},
	}
	for _, tt := range tests {
		_, err := client.Submit(t.Context(), api.Upload{Body: bytes.NewReader(tt.audio), Size: int64(len(tt.audio))})
		if aviary.CodeOf(err) != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
	list, err := client.List(t.Context(), api.ListOptions{})
	if err != nil || len(list.Data) != 0 {
		t.Errorf("jobs %v, %v", list.Data, err)
	}
	err = filepath.WalkDir(filepath.Join(dir, "blobs"), func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != aviary.SystemBlob {
			t.Errorf("left behind: %s", file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStopInTheMiddleOfAJobLosesNothing stops a system while a job runs and starts another on the same directory.
func TestStopInTheMiddleOfAJobLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, client := start(t, dir, func(s *cli.Settings) { s.DrainTimeout = 0 })
	long := submit(t, client, "long", minute(t))
	short := submit(t, client, "short", sample(t, "theo-4-44k1-stereo.flac"))
	waitFor(t, client, long.ID, func(j api.Job) bool { return j.Status != aviary.StateQueued })
	stop(t, first)

	_, client = start(t, dir, nil)
	for _, id := range []string{short.ID, long.ID} {
		job, err := client.Wait(t.Context(), id, nil)
		if err != nil || job.Status != aviary.StateSucceeded {
			t.Fatalf("%s: %+v, %v", id, job, err)
		}
	}
	attempts, err := client.Attempts(t.Context(), long.ID)
	if err != nil || len(attempts.Data) < 2 || attempts.Data[0].Outcome != aviary.OutcomeReleased {
		t.Errorf("attempts %+v, %v; the first should be released", attempts.Data, err)
	}
	if job, _ := client.Job(t.Context(), long.ID); job.Attempt != 1 || job.Lost != 0 {
		t.Errorf("the stop was charged: %+v", job)
	}
}

// waitFor polls until a job is as wanted.
func waitFor(t *testing.T, c *api.Client, id string, want func(api.Job) bool) {
	t.Helper()
	job, err := c.Job(t.Context(), id)
	for err == nil && !want(job) {
		job, err = c.After(t.Context(), job, 10*time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneDataDirectoryHasOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir, nil)
	s := cli.DefaultSettings()
	s.DataDir, s.Listen, s.MetricsListen = dir, "127.0.0.1:0", ""
	if second, err := program.Start(t.Context(), cli.RoleAll, s, slog.New(slog.DiscardHandler)); err == nil {
		stop(t, second)
		t.Fatal("a second server shares the directory")
	}
	s.RedisURL = "redis://127.0.0.1:1"
	if worker, err := program.Start(t.Context(), cli.RoleWorker, s, slog.New(slog.DiscardHandler)); err == nil {
		stop(t, worker)
		t.Fatal("a worker shares the directory of a server that needs it alone")
	}
}

func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	system, client := start(t, t.TempDir(), func(s *cli.Settings) { s.MetricsListen = "127.0.0.1:0" })
	job := submit(t, client, "a", sample(t, "theo-4-44k1-stereo.flac"))
	if _, err := client.Wait(t.Context(), job.ID, nil); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(system.MetricsURL())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`parakeet_jobs_finished_total{code="",status="succeeded"} 1`, `parakeet_attention_total{mode="full"} 1`, "parakeet_audio_duration_seconds_count 1"} {
		if !strings.Contains(body.String(), want) {
			t.Errorf("no %s in the metrics:\n%s", want, body.String())
		}
	}
	if strings.Contains(body.String(), "NaN") || strings.Contains(body.String(), " +Inf\n") {
		t.Error("a metric is not finite")
	}
}

// run runs a command line against a server and returns its exit code and streams.
func run(t *testing.T, server string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := map[string]string{"AVIARY_SERVER": server}
	code = cli.Main(args, cli.Streams{
		In: strings.NewReader(""), Out: &stdout, Err: &stderr,
		Lookup:   func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		Environ:  func() []string { return nil },
		Terminal: func(any) bool { return false },
		Signals:  context.WithCancel,
	}, backends)
	return code, stdout.String(), stderr.String()
}

// The bundled 8 kHz recordings begin with a header of 44 bytes.
const header, bytesPerSecond = 44, 8000 * 2

// clip is the first 1.3 s of a recording: one digit.
func clip(t *testing.T) []byte {
	return wav(sample(t, "george-5-8k.wav")[:header+bytesPerSecond*13/10])
}

// minute is more than a minute of speech: long enough to be stopped in the middle.
func minute(t *testing.T) []byte {
	b := sample(t, "yweweler-20-8k.wav")
	more := 5
	if underRace {
		more = 2 // takes as long
	}
	return wav(append(bytes.Clone(b), bytes.Repeat(b[header:], more)...))
}

// wav sets the sizes in a header to what follows it.
func wav(b []byte) []byte {
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
	binary.LittleEndian.PutUint32(b[header-4:], uint32(len(b)-header))
	return b
}

// TestBulk transcribes forty files of which one is broken, and again.
func TestBulk(t *testing.T) {
	t.Parallel()
	good := 39
	if underRace {
		good = 19
	}
	system, client := start(t, t.TempDir(), nil)
	in, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	audio := clip(t)
	for i := range good {
		write(t, filepath.Join(in, "sub", "größe", string(rune('a'+i/26))+string(rune('a'+i%26))+".wav"), audio)
	}
	write(t, filepath.Join(in, "broken.wav"), audio[:30])
	write(t, filepath.Join(in, "notes.txt"), []byte("no recording"))
	report := filepath.Join(out, "report.json")
	bulk := []string{"bulk", in, "-o", out, "--format", "json,text", "--report", report, "--max-inflight", "16"}

	code, _, errs := run(t, system.URL(), bulk...)
	if code != 3 || !strings.Contains(errs, fmt.Sprintf("%d succeeded, 1 refused", good)) || !strings.Contains(errs, "broken.wav: ") {
		t.Fatalf("exit %d:\n%s", code, errs)
	}
	var results []map[string]any
	if b, err := os.ReadFile(report); err != nil || json.Unmarshal(b, &results) != nil || len(results) != good+1 {
		t.Errorf("report of %d, %v", len(results), err)
	}
	for _, name := range []string{"sub/größe/aa.txt", "sub/größe/as.txt"} {
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || strings.TrimSpace(string(b)) != "two" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}

	code, _, errs = run(t, system.URL(), bulk...)
	if code != 3 || !strings.Contains(errs, fmt.Sprintf("%d skipped, 1 refused", good)) {
		t.Errorf("the second run: exit %d:\n%s", code, errs)
	}
	if list, err := client.List(t.Context(), api.ListOptions{Limit: 200}); err != nil || len(list.Data) != good {
		t.Errorf("%d jobs after two runs, %v; want %d", len(list.Data), err, good)
	}
	if err := os.Remove(filepath.Join(out, "sub/größe/aa.txt")); err != nil {
		t.Fatal(err)
	}
	if code, _, errs = run(t, system.URL(), bulk...); !strings.Contains(errs, fmt.Sprintf("1 succeeded, %d skipped, 1 refused", good-1)) {
		t.Errorf("after a transcript was removed: exit %d:\n%s", code, errs)
	}
	if list, _ := client.List(t.Context(), api.ListOptions{Limit: 200}); len(list.Data) != good {
		t.Errorf("%d jobs; the removed transcript should come from the old job", len(list.Data))
	}
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCommands goes through the commands of a client.
func TestCommands(t *testing.T) {
	t.Parallel()
	system, _ := start(t, t.TempDir(), nil)
	file := filepath.Join(t.TempDir(), "clip.wav")
	write(t, file, clip(t))
	expect := func(wantCode int, wantOut string, args ...string) string {
		t.Helper()
		code, out, errs := run(t, system.URL(), args...)
		if code != wantCode || !strings.Contains(out+errs, wantOut) {
			t.Errorf("%v: exit %d, want %d, with %q:\n%s%s", args, code, wantCode, wantOut, out, errs)
		}
		return out
	}
	id := strings.TrimSpace(expect(0, "job_", "submit", "--label", "team=radio", file))
	expect(0, "succeeded", "wait", "--for", "succeeded", id)
	expect(0, "succeeded", "status", id)
	expect(0, id+"\t1\tsucceeded\tcpu\t", "status", "--attempts", id)
	expect(0, `"outcome": "succeeded"`, "status", "--attempts", "--json", id)
	expect(5, "not_found", "status", "--attempts", "job_00000000000000000000000000")
	expect(0, "two\n", "transcript", id)
	expect(0, "-->", "transcript", "--format", "srt", id)
	expect(0, "WEBVTT", "transcript", "--format", "vtt", id)
	expect(0, `"model":"digits"`, "transcript", "--json", id)
	expect(0, "two\n", "transcribe", file)
	expect(0, id, "list", "--label", "team=radio")
	expect(0, "jobs queued", "queue")
	expect(0, `"jobs_running": 0`, "queue", "--json")
	expect(0, "accepted", "probe", file)
	expect(0, "accepted", "probe", "--quick", file)
	expect(10, "accepted", "probe", filepath.Join(t.TempDir(), "none.wav"), file) // one that cannot be read keeps nobody from the others
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(2, "is not a file", "probe", pipe) // and nobody waits for its writer
	expect(2, "is not a file", "submit", pipe)
	expect(2, "is a directory", "submit", t.TempDir())
	expect(1, "foo", "doctor", "--database-url", "foo://x", "--data-dir", t.TempDir())
	expect(4, "no channel 2", "transcribe", "--channel", "2", file)
	expect(2, "--channel", "transcribe", "--channel", "left", file)
	expect(0, "two\n", "transcribe", "--channel", "1", file)
	expect(0, "longest recording\t3600 s", "capacity")
	expect(0, "model and device", "doctor", "--data-dir", filepath.Join(t.TempDir(), "new"))
	expect(0, "refused are: ", "doctor", "--ffmpeg", "off", "--data-dir", t.TempDir())
	expect(1, "PARAKEET_MODEL", "doctor", "--model", "/none", "--data-dir", t.TempDir())
	expect(1, "AVIARY_FFMPEG", "doctor", "--ffmpeg", "/none", "--data-dir", t.TempDir())
	expect(1, "AVIARY_REDIS_URL", "doctor", "--redis-url", "redis://127.0.0.1:1", "--data-dir", t.TempDir())
	expect(0, "succeeded", "cancel", id) // it had ended
	expect(4, "state_conflict", "retry", id)
	expect(0, "", "delete", id)
	expect(5, "job_expired", "transcript", id)
	expect(5, "not_found", "status", "job_00000000000000000000000000")
	expect(10, "no such file", "submit", filepath.Join(t.TempDir(), "none.wav"))
	expect(5, "no recordings", "bulk", t.TempDir(), "-o", t.TempDir())
	expect(2, "--format", "transcript", "--format", "doc", id)
	expect(2, "unknown flag", "list", "--nonsense")
	expect(2, "unknown command", "transcribble")
	expect(0, "aviary", "version")
	if code, _, errs := run(t, "http://127.0.0.1:1", "queue"); code != 7 || !strings.Contains(errs, "aviary serve") {
		t.Errorf("no server: exit %d: %s", code, errs)
	}
}
