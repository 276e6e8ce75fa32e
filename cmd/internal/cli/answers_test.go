package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
)

// dropper is a proxy that forwards everything, and drops answers to submits after the server has given them: the job exists, and the client sees a
// connection that broke.
type dropper struct {
	url   string
	drops atomic.Int64 // answers still to be dropped
	posts atomic.Int64 // submits forwarded
}

func newDropper(t *testing.T, server string) *dropper {
	t.Helper()
	d := &dropper{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		out, err := http.NewRequestWithContext(in.Context(), in.Method, server+in.URL.RequestURI(), in.Body)
		if err != nil {
			panic(err)
		}
		out.Header, out.ContentLength = in.Header.Clone(), in.ContentLength
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		if in.Method == http.MethodPost {
			d.posts.Add(1)
			if d.drops.Add(-1) >= 0 {
				_, _ = io.Copy(io.Discard, resp.Body)
				panic(http.ErrAbortHandler)
			}
		}
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(proxy.Close)
	d.url = proxy.URL
	return d
}

// A lost answer makes no second job, whether the command itself tries again, or gives up and is run once more.
func TestLostAnswersMakeNoSecondJob(t *testing.T) {
	t.Parallel()
	system, client := start(t, t.TempDir(), nil)
	proxy := newDropper(t, system.URL())
	in, out := t.TempDir(), t.TempDir()
	jobs := func() int {
		t.Helper()
		list, err := client.List(t.Context(), api.ListOptions{Limit: 200})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Data)
	}
	file := filepath.Join(in, "a.wav")
	write(t, file, clip(t))
	write(t, filepath.Join(in, "b.wav"), clip(t))

	proxy.drops.Store(2)
	if code, id, errs := run(t, proxy.url, "submit", file); code != 0 || jobs() != 1 || proxy.posts.Load() != 3 || !strings.HasPrefix(id, "job_") {
		t.Fatalf("submit: exit %d, %d jobs after %d posts: %s", code, jobs(), proxy.posts.Load(), errs)
	}
	// Each submit is a request of its own.
	if code, _, errs := run(t, proxy.url, "submit", file); code != 0 || jobs() != 2 {
		t.Fatalf("submit again: exit %d, %d jobs: %s", code, jobs(), errs)
	}
	// No answer ever comes: bulk gives up, and does not know its jobs.
	proxy.drops.Store(1 << 40)
	bulk := []string{"bulk", in, "-o", out}
	if code, _, errs := run(t, proxy.url, bulk...); code != 3 || jobs() != 4 {
		t.Fatalf("bulk: exit %d, %d jobs: %s", code, jobs(), errs)
	}
	// The next run finds them.
	proxy.drops.Store(0)
	if code, _, errs := run(t, proxy.url, bulk...); code != 0 || jobs() != 4 || !strings.Contains(errs, "2 succeeded") {
		t.Fatalf("bulk again: exit %d, %d jobs: %s", code, jobs(), errs)
	}
	if b, err := os.ReadFile(filepath.Join(out, "a.json")); err != nil || !strings.Contains(string(b), `"two"`) {
		t.Errorf("a.json: %s, %v", b, err)
	}
	if code, _, errs := run(t, proxy.url, bulk...); code != 0 || jobs() != 4 || !strings.Contains(errs, "2 skipped") {
		t.Errorf("bulk a third time: exit %d, %d jobs: %s", code, jobs(), errs)
	}
	// What is asked for anew is a new request, also where an answer is owed.
	proxy.drops.Store(1 << 40)
	if code, _, errs := run(t, proxy.url, slices.Concat(bulk, []string{"--skip", "none"})...); code != 3 || jobs() != 6 {
		t.Fatalf("bulk of everything: exit %d, %d jobs: %s", code, jobs(), errs)
	}
	proxy.drops.Store(0)
	if code, _, errs := run(t, proxy.url, slices.Concat(bulk, []string{"--label", "team=radio"})...); code != 0 || jobs() != 8 {
		t.Errorf("bulk with a label: exit %d, %d jobs: %s", code, jobs(), errs)
	}
}

// Who is named by the proxy in front has limits and a name of his own.
func TestTenantsByHeader(t *testing.T) {
	t.Parallel()
	system, client := start(t, t.TempDir(), func(s *cli.Settings) { s.TenantHeader, s.MaxTenantAudio = "X-Caller", 0 })
	audio := clip(t)
	req, err := http.NewRequestWithContext(t.Context(), "POST", system.URL()+"/v1/jobs", strings.NewReader(string(audio)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Caller", "ann")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	submit(t, client, "nobody", audio)
	list, err := client.List(t.Context(), api.ListOptions{Ascending: true})
	if err != nil || len(list.Data) != 2 || list.Data[0].Tenant != "ann" || list.Data[1].Tenant != "" {
		t.Errorf("%+v, %v", list.Data, err)
	}
	for _, job := range list.Data {
		if job, err := client.Wait(t.Context(), job.ID, nil); err != nil || job.Status != aviary.StateSucceeded {
			t.Errorf("%+v, %v", job, err)
		}
	}
}
