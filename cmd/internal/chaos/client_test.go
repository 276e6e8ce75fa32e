//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

// answer is what a client hears.
type answer struct {
	status int
	job    api.Job
	code   aviary.Code // of a problem
	body   string
	took   time.Duration
	header http.Header
}

// accepted says whether the answer is a job: a new one, or the one that an earlier request with the same key has made.
func (a answer) accepted() bool {
	return a.status == http.StatusAccepted || a.status == http.StatusOK && a.header.Get("Idempotency-Replayed") == "true"
}

// client is one that keeps no connection, so that a process that is gone breaks no later request.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// ask makes one request, once.
func ask(ctx context.Context, method, target string, header http.Header, body []byte) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if header != nil {
		r.Header = header
	}
	began := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		return answer{took: time.Since(began)}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, body: string(text), took: time.Since(began), header: resp.Header}
	if err != nil {
		return a, err
	}
	var said struct{ Code aviary.Code }
	_ = json.Unmarshal(text, &said)
	_ = json.Unmarshal(text, &a.job)
	a.code = said.Code
	return a, nil
}

// post submits a recording once. A job enters it in the ledger.
func (f *fleet) post(ctx context.Context, base string, e *entry) (answer, error) {
	query := url.Values{"name": {e.text()}}
	if e.class != "" {
		query.Set("priority", string(e.class))
	}
	header := http.Header{"Content-Type": {"audio/wav"}}
	if e.key != "" {
		header.Set("Idempotency-Key", e.key)
	}
	if e.tenant != "" {
		header.Set(tenantHeader, e.tenant)
	}
	began := time.Now()
	a, err := ask(ctx, http.MethodPost, base+"/v1/jobs?"+query.Encode(), header, e.wav())
	if err == nil && a.accepted() {
		if a.job.ID == "" {
			return a, fmt.Errorf("%d without a job: %s", a.status, a.body)
		}
		if e.job == "" {
			e.job, e.at = a.job.ID, began
			f.accepted(e)
		} else if e.job != a.job.ID {
			f.t.Errorf("%v got the id %s, and then %s", e.script, e.job, a.job.ID)
		}
	}
	return a, err
}

// submit posts a recording that must be accepted.
func (f *fleet) submit(base string, s script) *entry {
	f.t.Helper()
	e := &entry{script: s}
	f.mustPost(base, e)
	return e
}

func (f *fleet) mustPost(base string, e *entry) {
	f.t.Helper()
	a, err := f.post(f.t.Context(), base, e)
	if err != nil || a.status != http.StatusAccepted {
		f.t.Fatalf("post %v: %d %s, %v", e.script, a.status, a.body, err)
	}
}

// persevere posts a recording with a key, again and again until it is accepted, as a good client does.
func (f *fleet) persevere(ctx context.Context, base func() string, e *entry) error {
	for {
		a, err := f.post(ctx, base(), e)
		if err == nil && a.accepted() {
			return nil
		}
		if err == nil && a.status < 429 && a.status != http.StatusConflict {
			return fmt.Errorf("post %v: %d %s", e.script, a.status, a.body)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("post %v: %d %s, %w", e.script, a.status, a.body, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// cancel asks for a job's end, once.
func (f *fleet) cancel(base string, e *entry) (answer, error) {
	f.mu.Lock()
	e.canceled = true
	f.mu.Unlock()
	return ask(context.Background(), http.MethodPost, base+"/v1/jobs/"+e.job+"/cancel", nil, nil)
}

func get(t testing.TB, target string) answer {
	t.Helper()
	a, err := ask(t.Context(), http.MethodGet, target, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tenantHeader names who a request comes from.
const tenantHeader = "X-Aviary-Tenant"
