package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
)

// asAviary makes the test binary behave as aviary, so that tests can send signals to a real process: 1 as the one of cmd/aviary, and otherwise as one with the faulty
// engine that its value names.
const asAviary = "AVIARY_TEST_AS_AVIARY"

func TestMain(m *testing.M) {
	if engine := os.Getenv(asAviary); engine == "1" {
		os.Exit(cli.Main(os.Args[1:], cli.Standard(), backends))
	} else if engine != "" {
		os.Exit(faulty(engine).Main(os.Args[1:], cli.Standard()))
	}
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen { // most of these tests wait for processes more than they compute
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// serve runs `aviary serve` in a process of its own and waits until the API listens.
func serve(t *testing.T, dir string, flags ...string) (*exec.Cmd, *api.Client) {
	t.Helper()
	args := append([]string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "", "--log-format", "json"}, flags...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asAviary+"=1")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, URL string }
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line.Msg == "the API listens" {
			go io.Copy(io.Discard, log)
			client, err := api.NewClient(api.ClientConfig{Server: line.URL})
			if err != nil {
				t.Fatal(err)
			}
			return cmd, client
		}
	}
	t.Fatalf("serve ended before the API listened: %v", cmd.Wait())
	return nil, nil
}

// TestSIGTERMInTheMiddleOfAJob sends the signal that every supervisor sends, then starts the server again.
func TestSIGTERMInTheMiddleOfAJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	process, client := serve(t, dir, "--drain-timeout", "0")
	long := submit(t, client, "long", minute(t))
	waitFor(t, client, long.ID, func(j api.Job) bool { return j.Status != aviary.StateQueued })
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v, want exit code 0", err)
	}
	process, client = serve(t, dir)
	job, err := client.Job(t.Context(), long.ID)
	if err != nil || job.Status.Final() || job.Lost != 0 || job.Attempt > 1 {
		t.Fatalf("after the restart: %+v, %v", job, err)
	}
	if job, err = client.Cancel(t.Context(), long.ID); err != nil {
		t.Fatal(err)
	}
	if job, err = client.Wait(t.Context(), long.ID, nil); err != nil || job.Status != aviary.StateCanceled {
		t.Errorf("after the cancel: %+v, %v", job, err)
	}
	short := submit(t, client, "short", clip(t))
	if job, err = client.Wait(t.Context(), short.ID, nil); err != nil || job.Status != aviary.StateSucceeded {
		t.Errorf("the job after it: %+v, %v", job, err)
	}
	if err := process.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

func TestWrongSettingsEndTheProcessWithCodeTwo(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "--data-dir", t.TempDir())
	cmd.Env = append(os.Environ(), asAviary+"=1", "PARAKEET_ATTENTION_MODE=sliding")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(errs.String(), "PARAKEET_ATTENTION_MODE") {
		t.Errorf("%v: %s", err, errs.String())
	}
}
