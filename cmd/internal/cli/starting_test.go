//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
	"github.com/aviary-asr/aviary/gpu"
)

// While a device is waited for, the server is alive and not ready, and what is submitted all the same is kept.
func TestAServerThatWaitsForItsDeviceIsNotReady(t *testing.T) {
	t.Parallel()
	ready := make(chan struct{})
	late := cli.Program{Backends: []cli.Backend{{
		Name:    "cpu",
		Devices: func() ([]string, error) { return []string{"cpu"}, nil },
		Engine: func(context.Context, string) (gpu.Engine, error) {
			<-ready
			return faultyEngine("good"), nil
		},
	}}}
	lines, log := io.Pipe()
	t.Cleanup(func() { log.Close() })
	urls := make(chan string, 1)
	go func() {
		for scan := bufio.NewScanner(lines); scan.Scan(); {
			var line struct{ Msg, URL string }
			if json.Unmarshal(scan.Bytes(), &line) == nil && line.Msg == "the API listens" {
				urls <- line.URL
			}
		}
	}()
	started := make(chan error, 1)
	var system *cli.System
	go func() {
		s := cli.DefaultSettings()
		s.DataDir, s.Listen, s.MetricsListen = t.TempDir(), "127.0.0.1:0", ""
		var err error
		system, err = late.Start(t.Context(), cli.RoleAll, s, slog.New(slog.NewJSONHandler(log, nil)))
		started <- err
	}()
	url := <-urls
	client, err := api.NewClient(api.ClientConfig{Server: url})
	if err != nil {
		t.Fatal(err)
	}
	status := func(path string, want int) {
		t.Helper()
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s answers %d, want %d", path, resp.StatusCode, want)
		}
	}
	status("/livez", http.StatusOK)
	status("/readyz", http.StatusServiceUnavailable)
	job := submit(t, client, "early", clip(t))
	close(ready)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	defer stop(t, system)
	status("/readyz", http.StatusOK)
	if job, err = client.Wait(t.Context(), job.ID, nil); err != nil || job.Status != aviary.StateSucceeded {
		t.Errorf("%+v, %v", job, err)
	}
}
