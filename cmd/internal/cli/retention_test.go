package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
)

// hasty is a program that keeps house all the time.
var hasty = cli.Program{Backends: backends, Timing: cli.Timing{Keeping: aviary.HousekeepingSchedule{Every: 20 * time.Millisecond}}}

// blobsOf lists the blobs in a data directory, those that are still uploaded and the marker left out.
func blobsOf(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "blobs"), func(file string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // deleted meanwhile
		}
		if err == nil && !d.IsDir() && filepath.Base(filepath.Dir(file)) != "staging" && d.Name() != aviary.SystemBlob {
			list = append(list, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestRetention goes through the life of what a job leaves: audio and transcript; the transcript; nothing.
func TestRetention(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, client := startProgram(t, program, dir, nil)
	done := submit(t, client, "done", clip(t))
	if job, err := client.Wait(t.Context(), done.ID, nil); err != nil || job.Status != aviary.StateSucceeded {
		t.Fatalf("%+v, %v", job, err)
	}
	canceled := submit(t, client, "canceled", minute(t))
	if _, err := client.Cancel(t.Context(), canceled.ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, client, canceled.ID, func(j api.Job) bool { return j.Status.Final() })
	if n := len(blobsOf(t, dir)); n != 4 {
		t.Errorf("%d blobs of two jobs that are kept, want 4", n)
	}
	stop(t, first)

	second, client := startProgram(t, hasty, dir, func(s *cli.Settings) { s.RetentionAudio = time.Millisecond })
	eventually(t, "the audio goes", func() bool { return len(blobsOf(t, dir)) == 0 })
	if got, err := client.Transcript(t.Context(), done.ID); err != nil || got.Text != "two" {
		t.Errorf("the transcript should be there: %q, %v", got.Text, err)
	}
	if _, err := client.Retry(t.Context(), canceled.ID); aviary.CodeOf(err) != aviary.CodeJobExpired {
		t.Errorf("a retry without audio: %v", err)
	}
	if job, err := client.Job(t.Context(), canceled.ID); err != nil || job.Status != aviary.StateCanceled {
		t.Errorf("%+v, %v", job, err)
	}
	stop(t, second)

	third, client := startProgram(t, hasty, dir, func(s *cli.Settings) { s.RetentionTranscript = time.Millisecond })
	eventually(t, "the transcript goes", func() bool {
		_, err := client.Transcript(t.Context(), done.ID)
		return aviary.CodeOf(err) == aviary.CodeJobExpired
	})
	resp, err := http.Get(third.URL() + "/v1/jobs/" + done.ID + "/transcript")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusGone {
		t.Errorf("the transcript of a purged job: status %d, want 410", resp.StatusCode)
	}
}

// eventually waits for what sends no signal.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}

// TestALostDatabaseIsLoud: beside the recordings of another database nothing starts. When their marker was deleted on purpose they are reported, and stay where
// they are.
func TestALostDatabaseIsLoud(t *testing.T) {
	t.Parallel()
	const loud = "was the database deleted"
	dir := t.TempDir()
	open := func() string {
		var log bytes.Buffer
		s := cli.DefaultSettings()
		s.DataDir, s.Listen, s.MetricsListen = dir, "127.0.0.1:0", ""
		system, err := hasty.Start(t.Context(), cli.RoleAll, s, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		client, err := api.NewClient(api.ClientConfig{Server: system.URL()})
		if err != nil {
			t.Fatal(err)
		}
		if list, err := client.List(t.Context(), api.ListOptions{}); err != nil {
			t.Error(err)
		} else if len(list.Data) == 0 && len(blobsOf(t, dir)) == 0 {
			submit(t, client, "clip", clip(t))
		}
		stop(t, system)
		return log.String()
	}
	if log := open() + open(); strings.Contains(log, loud) {
		t.Errorf("a new system, and one with a job:\n%s", log)
	}
	files, err := filepath.Glob(filepath.Join(dir, "aviary.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	s := cli.DefaultSettings()
	s.DataDir, s.Listen, s.MetricsListen = dir, "127.0.0.1:0", ""
	system, err := hasty.Start(t.Context(), cli.RoleAll, s, slog.New(slog.DiscardHandler))
	if err == nil {
		stop(t, system)
	}
	_, marker, told := strings.Cut(fmt.Sprint(err), "delete the file ")
	if !errors.Is(err, aviary.ErrStorageAway) || !told {
		t.Fatalf("beside another database's recordings: %v", err)
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	before := len(blobsOf(t, dir))
	if log := open(); strings.Count(log, loud) != 1 {
		t.Errorf("recordings beside an empty database:\n%s", log)
	}
	if after := len(blobsOf(t, dir)); before != 2 || after != before {
		t.Errorf("%d blobs, then %d; want 2", before, after)
	}
}
