//go:build unix

package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// The tests here break the devices of real processes, as those of faults_test.go break the processes.

// A file that hangs one device costs the jobs on the others nothing: they are given back before the process ends.
func TestAHangDoesNotChargeTheOtherDevicesJobs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serveFaulty(t, "pair", dir)
	client := server.client()
	long := submit(t, client, "long", minute(t)).ID
	waitFor(t, client, long, isRunning)
	poison := submit(t, client, "poison", clip(t)).ID
	if code := server.exit(); code != 70 {
		t.Fatalf("exit code %d, want 70", code)
	}
	client = serveFaulty(t, "good", dir).client()
	for id, lost := range map[string]int{long: 0, poison: 1} {
		job, err := client.Wait(t.Context(), id, nil)
		if err != nil || job.Status != aviary.StateSucceeded || job.Lost != lost {
			t.Errorf("%+v, %v; want it lost %d times", job, err, lost)
		}
	}
}

// A device that hangs with every job is cordoned, as one that fails with every job is.
func TestADeviceThatAlwaysHangsIsCordoned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hangs := 0
	for code := 70; code == 70; hangs++ {
		server := serveFaulty(t, "hanging", dir)
		if hangs == 0 {
			client := server.client()
			for _, name := range []string{"a", "b", "c"} {
				submit(t, client, name, clip(t))
			}
		}
		if code = server.exit(); code == 71 {
			break
		}
		if code != 70 || hangs > 8 {
			t.Fatalf("exit code %d after %d hangs", code, hangs)
		}
	}
	jobs := map[string]bool{}
	for _, f := range failures(t, dir, "cpu") {
		jobs[f.Job] = true
	}
	if len(jobs) != 3 {
		t.Errorf("cordoned for %v", jobs)
	}
}

func TestADeviceThatHangsBeforeItsFirstJobEndsTheProcess(t *testing.T) {
	t.Parallel()
	for engine, want := range map[string]string{"stuck": "no sign of life", "mute": "run limit"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if code := serveFaulty(t, engine, dir).exit(); code != 70 {
				t.Errorf("exit code %d, want 70", code)
			}
			if list := failures(t, dir, "cpu"); len(list) != 1 || !strings.Contains(list[0].Error, want) {
				t.Errorf("remembered: %+v", list)
			}
		})
	}
}

// A device that cannot be opened is left out. Without any other the process ends as after a failed self-test.
func TestADeviceThatCannotBeOpenedIsLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serveFaulty(t, "half", dir)
	if line := server.logged("the device is left out"); line["device"] != "cpu:0" {
		t.Errorf("left out: %v", line)
	}
	client := server.client()
	job, err := client.Wait(t.Context(), submit(t, client, "a", clip(t)).ID, nil)
	if err != nil || job.Status != aviary.StateSucceeded {
		t.Errorf("on the other device: %+v, %v", job, err)
	}
	if list := failures(t, dir, "cpu:0"); len(list) != 1 || !strings.Contains(list[0].Error, "it does not answer on the bus") {
		t.Errorf("remembered: %+v", list)
	}
	dir = t.TempDir()
	if code := serveFaulty(t, "absent", dir).exit(); code != 71 || len(failures(t, dir, "cpu")) != 1 {
		t.Errorf("exit code %d, want 71; remembered: %+v", code, failures(t, dir, "cpu"))
	}
}

// A model that cannot be used is no fault of any device.
func TestAWrongModelIsNotBlamedOnDevices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serveFaulty(t, "1", dir, "--model", filepath.Join(dir, "none.nemo")) // the real engine
	if code := server.exit(); code == 0 || code == 71 || code == 70 || !server.said("PARAKEET_MODEL") {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(dir, "devices", "cpu.failures")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the device's failures: %v", err)
	}
}

// A device that fails ends the process, which gives the job back without a charge; a job counts once towards the cordon of a device.
func TestAFailedDeviceEndsTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serveFaulty(t, "failing", dir)
	id := submit(t, server.client(), "a", clip(t)).ID
	if code := server.exit(); code != 71 {
		t.Fatalf("exit code %d, want 71", code)
	}
	server = serveFaulty(t, "failing", dir)
	if code := server.exit(); code != 71 { // the same job
		t.Fatalf("exit code %d, want 71", code)
	}
	server = serveFaulty(t, "good", dir)
	job, err := server.client().Wait(t.Context(), id, nil)
	if err != nil || job.Status != aviary.StateSucceeded || job.Lost != 2 {
		t.Errorf("%+v, %v", job, err)
	}
	if list := failures(t, dir, "cpu"); len(list) != 1 || list[0].Job != id {
		t.Errorf("remembered: %+v", list)
	}
}

type failure struct {
	At    time.Time
	Job   string
	Error string
}

func failures(t *testing.T, dir, device string) (list []failure) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "devices", strings.ReplaceAll(device, ":", "-")+".failures"))
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A device that fails its test takes no jobs, and after the third time it is not even tried, until its file is gone.
func TestAnUnfitDeviceIsCordoned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		server := serveFaulty(t, "unfit", dir)
		if code := server.exit(); code != 71 || server.said("the worker takes jobs") || !server.said("It fell off the bus.") {
			t.Fatalf("exit code %d, want 71, before it takes jobs", code)
		}
	}
	file := filepath.Join(dir, "devices", "cpu.failures")
	until := failures(t, dir, "cpu")[0].At.Add(time.Hour).Format(time.RFC3339)
	server := serveFaulty(t, "good", dir)
	if code := server.exit(); code != 71 || !server.said(file) || !server.said(until) {
		t.Errorf("exit code %d; it must say %s and %s", code, file, until)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	serveFaulty(t, "good", dir).logged("the worker takes jobs")
}
