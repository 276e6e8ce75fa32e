//go:build unix

package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

// readiness is what /readyz answers.
func (r *running) readiness() int {
	r.t.Helper()
	url, _ := r.logged("the API listens")["url"].(string)
	resp, err := http.Get(url + "/readyz")
	if err != nil {
		r.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// uncharged waits for jobs to succeed, each at its first charged attempt.
func uncharged(t *testing.T, c *api.Client, ids []string) {
	t.Helper()
	for _, id := range ids {
		job, err := c.Wait(t.Context(), id, nil)
		if err != nil || job.Status != aviary.StateSucceeded || job.Attempt != 1 || job.Lost != 0 {
			t.Errorf("%+v (%+v), %v", job, job.Error, err)
		}
	}
}

func submitMany(t *testing.T, c *api.Client, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = submit(t, c, "a", clip(t)).ID
	}
	return ids
}

// A process that does not have the recordings of its database does not start: neither a worker whose disk is not mounted, nor a second server with a folder of its own.
func TestAProcessWithoutTheRecordingsRefusesToStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shared := []string{"--redis-url", sharedRedis(t), "--database-url", "sqlite:" + filepath.Join(dir, "aviary.db")}
	client := serveFaulty(t, "good", dir, append(shared, "--role", "api")...).client()
	ids := submitMany(t, client, 3)
	for _, role := range []string{"worker", "all"} {
		wrong := serveFaulty(t, "good", t.TempDir(), append(shared, "--role", role)...)
		if code := wrong.exit(); code != 1 || !wrong.said("AVIARY_BLOB_URL") || !wrong.said("is the disk mounted") {
			t.Errorf("role %s: exit code %d", role, code)
		}
	}
	serveFaulty(t, "good", t.TempDir(), append(shared, "--role", "worker", "--blob-url", "file:"+filepath.Join(dir, "blobs"))...)
	uncharged(t, client, ids)
}

// A disk that is gone while jobs wait: nothing is charged and nothing accepted, the process is not ready, and when the disk is back all jobs succeed.
func TestRecordingsThatGoAwayAndComeBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shared := []string{"--redis-url", sharedRedis(t)}
	server := serveFaulty(t, "good", dir, append(shared, "--role", "api")...)
	client := server.client()
	worker := serveFaulty(t, "good", dir, append(shared, "--role", "worker")...)
	worker.logged("the worker takes jobs")
	worker.signal(syscall.SIGSTOP)
	ids := submitMany(t, client, 5)
	blobs := filepath.Join(dir, "blobs")
	rename(t, blobs, blobs+"-away")
	for _, folder := range []string{"staging", "00"} { // an empty mount point
		if err := os.MkdirAll(filepath.Join(blobs, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	worker.signal(syscall.SIGCONT)
	worker.logged("jobs cannot be claimed; tickets go back to the queue")
	if status := server.readiness(); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d", status)
	}
	if job, err := client.Submit(t.Context(), upload("a", clip(t))); aviary.CodeOf(err) != aviary.CodeStoreUnavailable {
		t.Errorf("an upload: %+v, %v", job, err)
	}
	left := 0
	for _, folder := range []string{"staging", "00"} {
		list, err := os.ReadDir(filepath.Join(blobs, folder))
		if left += len(list); err != nil {
			t.Error(err)
		}
	}
	if left != 0 {
		t.Errorf("%d files are in the mount point", left)
	}
	for _, id := range ids {
		if job, err := client.Job(t.Context(), id); err != nil || job.Status != aviary.StateQueued || job.Attempt > 1 {
			t.Errorf("meanwhile: %+v, %v", job, err)
		}
	}
	if err := os.RemoveAll(blobs); err != nil {
		t.Fatal(err)
	}
	rename(t, blobs+"-away", blobs)
	uncharged(t, client, ids)
	if status := server.readiness(); status != http.StatusOK {
		t.Errorf("/readyz answers %d", status)
	}
}

// A worker that has lost the recordings leaves the jobs to one that has them.
func TestAWorkerWithoutTheRecordingsBesideOneWithThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blobs, link := filepath.Join(dir, "blobs"), filepath.Join(t.TempDir(), "link")
	shared := []string{"--redis-url", sharedRedis(t), "--database-url", "sqlite:" + filepath.Join(dir, "aviary.db")}
	client := serveFaulty(t, "good", dir, append(shared, "--role", "api")...).client()
	if err := os.Symlink(blobs, link); err != nil {
		t.Fatal(err)
	}
	wrong := serveFaulty(t, "good", t.TempDir(), append(shared, "--role", "worker", "--blob-url", "file:"+link)...)
	wrong.logged("the worker takes jobs")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	first := submitMany(t, client, 1)
	wrong.logged("jobs cannot be claimed; tickets go back to the queue")
	serveFaulty(t, "good", t.TempDir(), append(shared, "--role", "worker", "--blob-url", "file:"+blobs)...).logged("the worker takes jobs")
	uncharged(t, client, append(first, submitMany(t, client, 30)...))
}

// Two systems on one database of Redis would take each other's tickets: the second does not start, and does with a database of its own.
func TestTwoSystemsOnOneRedis(t *testing.T) {
	t.Parallel()
	redis := sharedRedis(t)
	first := serveFaulty(t, "good", t.TempDir(), "--redis-url", redis)
	client := first.client()
	dir := t.TempDir()
	second := serveFaulty(t, "good", dir, "--redis-url", redis)
	if code := second.exit(); code != 1 || !second.said("AVIARY_REDIS_URL") || !second.said("another system uses this database of Redis") {
		t.Errorf("exit code %d", code)
	}
	other := serveFaulty(t, "good", dir, "--redis-url", redis+"?db=1").client()
	uncharged(t, client, submitMany(t, client, 2))
	uncharged(t, other, submitMany(t, other, 2))
}
