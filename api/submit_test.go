package api_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

func TestSubmitRaw(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	a := r.do("POST", "/v1/jobs?name=talk.wav&priority=bulk&attention=local&label.team=legal&label.a/b=c%20d", strings.NewReader("AUDIO 12.5"),
		"Content-Type", "audio/wav", "X-Request-Id", "mine-1")
	job := a.job(t, http.StatusAccepted)
	if a.header.Get("Location") != "/v1/jobs/"+job.ID || a.header.Get("ETag") == "" || a.header.Get("Retry-After") == "" {
		t.Errorf("headers: %v", a.header)
	}
	if a.header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("request id %q was not echoed", a.header.Get("X-Request-Id"))
	}
	stored, err := r.store.Job(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	o := stored.Options
	if o.Name != "talk.wav" || o.Priority != aviary.PriorityBulk || o.Attention != aviary.AttentionLocal || o.Labels["team"] != "legal" || o.Labels["a/b"] != "c d" {
		t.Errorf("options: %+v", o)
	}
	if job.Name != "talk.wav" || job.Status != aviary.StateQueued || job.Audio.DurationSeconds != 12.5 || job.Audio.Bytes != 10 || len(job.Audio.SHA256) != 64 {
		t.Errorf("job: %+v", job)
	}
	if r.bell.rings.Load() != 1 {
		t.Error("the dispatcher was not woken")
	}
	if open, keys := r.blobs.state(); open != 0 || len(keys) != 2 { // the upload and what the device hears
		t.Errorf("%d staged, blobs %v", open, keys)
	}
}

// What a user should know of the recording stands in the job, and which channel was taken.
func TestSubmitShowsChannelAndWarnings(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	job := r.do("POST", "/v1/jobs?channel=2", strings.NewReader("AUDIO 1")).job(t, http.StatusAccepted)
	if job.Audio.Channel != 2 || len(job.Audio.Warnings) != 1 || job.Audio.Warnings[0] != "One channel was taken." {
		t.Errorf("audio: %+v", job.Audio)
	}
	plain := r.do("POST", "/v1/jobs", strings.NewReader("AUDIO 1"))
	if plain.job(t, http.StatusAccepted); strings.Contains(plain.body, "channel\"") || strings.Contains(plain.body, "warnings") {
		t.Errorf("the mix is said to be a channel, or nothing a warning: %s", plain.body)
	}
}

func TestSubmitMultipart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, query string
		parts       []part
		want        aviary.Options
	}{
		{"file alone takes the file's name", "", []part{{"file", "Zoë – интервью.wav", "AUDIO 1"}},
			aviary.Options{Name: "Zoë – интервью.wav", Priority: "interactive"}},
		{"options first", "", []part{{"options", "", `{"name":"dir/a.wav","priority":"bulk","attention":"FULL","labels":{"k":"v"}}`}, {"file", "b.wav", "AUDIO 1"}},
			aviary.Options{Name: "dir/a.wav", Priority: "bulk", Attention: "full", Labels: map[string]string{"k": "v"}}},
		{"empty options", "", []part{{"options", "", `{}`}, {"file", "b.wav", "AUDIO 1"}}, aviary.Options{Name: "b.wav", Priority: "interactive"}},
		{"nulls and empty words are defaults", "", []part{{"options", "", `{"name":null,"priority":"","attention":"","labels":null}`}, {"file", "b.wav", "AUDIO 1"}},
			aviary.Options{Name: "b.wav", Priority: "interactive"}},
		{"a channel by number", "", []part{{"options", "", `{"channel":2}`}, {"file", "b.wav", "AUDIO 1"}}, aviary.Options{Name: "b.wav", Channel: 2, Priority: "interactive"}},
		{"a channel by word", "?channel=7", []part{{"options", "", `{}`}, {"file", "b.wav", "AUDIO 1"}}, aviary.Options{Name: "b.wav", Channel: 7, Priority: "interactive"}},
		{"the mix", "?channel=mix", []part{{"options", "", `{}`}, {"file", "b.wav", "AUDIO 1"}}, aviary.Options{Name: "b.wav", Priority: "interactive"}},
		{"query beside options", "?priority=bulk&label.q=1", []part{{"options", "", `{"labels":{"o":"2"}}`}, {"file", "b.wav", "AUDIO 1"}},
			aviary.Options{Name: "b.wav", Priority: "bulk", Labels: map[string]string{"q": "1", "o": "2"}}},
		{"a file without a name", "", []part{{"file", "", "AUDIO 1"}}, aviary.Options{Priority: "interactive"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, nil)
			body, contentType := form(t, test.parts...)
			job := r.do("POST", "/v1/jobs"+test.query, body, "Content-Type", contentType).job(t, http.StatusAccepted)
			stored, _ := r.store.Job(t.Context(), job.ID)
			if got, want := fmt.Sprintf("%+v", stored.Options), fmt.Sprintf("%+v", test.want); got != want {
				t.Errorf("options\n got %s\nwant %s", got, want)
			}
			if string(r.blobs.blobs[job.ID]) != "AUDIO 1" {
				t.Errorf("blob %q", r.blobs.blobs[job.ID])
			}
		})
	}
}

// A refusal has its code, and leaves nothing: no row, no blob, nothing staged.
func TestSubmitRefusals(t *testing.T) {
	t.Parallel()
	const anyForm = "form"
	for _, test := range []struct {
		name        string
		query       string
		contentType string // anyForm: made of parts
		header      []string
		body        string
		parts       []part
		change      func(*rig)
		status      int
		code        aviary.Code
		check       func(p api.Problem) bool
	}{
		{name: "not audio", body: "hello", status: 415, code: "media_type_unsupported"},
		{name: "broken", body: "audio_broken", status: 400, code: "audio_broken"},
		{name: "no stream", body: "audio_no_stream", status: 422, code: "audio_no_stream"},
		{name: "unknown duration", body: "duration_unknown", status: 413, code: "duration_unknown"},
		{name: "exactly too long", body: "AUDIO 3600.001", status: 413, code: "audio_too_long", check: func(p api.Problem) bool {
			return *p.Limit == 3600 && *p.Actual == 3600.001 && p.Unit == "seconds" && p.Hint != ""
		}},
		{name: "zero duration", body: "AUDIO 0", status: 413, code: "duration_unknown"},
		{name: "announced too large", body: strings.Repeat("x", 1<<20+1), status: 413, code: "upload_too_large", check: func(p api.Problem) bool {
			return *p.Limit == 1<<20 && *p.Actual == 1<<20+1 && p.Unit == "bytes"
		}},
		{name: "file too large", contentType: anyForm, parts: []part{{"file", "a", strings.Repeat("x", 1<<20+1)}}, status: 413, code: "upload_too_large"},
		{name: "form announced too large", contentType: anyForm, parts: []part{{"file", "a", strings.Repeat("x", 2<<20)}}, status: 413, code: "upload_too_large"},
		{name: "queue full", body: "AUDIO 1", status: 503, code: "queue_full", change: func(r *rig) {
			r.intake.Limits.Queue.Jobs = 1
			r.store.createErr = &aviary.Error{Code: aviary.CodeQueueFull, Detail: "Full.", Limit: 1, Actual: 2, Unit: "jobs", Wait: 7 * time.Second}
		}, check: func(p api.Problem) bool { return p.RetryAfterSeconds == 7 }},
		{name: "no room", body: "AUDIO 1", status: 503, code: "storage_full", change: func(r *rig) { r.blobs.free, r.intake.Limits.FreeBytes = 10, 11 }},
		{name: "inside", body: "AUDIO 1", status: 500, code: "internal_error", change: func(r *rig) { r.store.createErr = errors.New("secret host name") },
			check: func(p api.Problem) bool { return !strings.Contains(p.Detail+p.Hint, "secret") && p.Retryable }},

		{name: "unknown option in the query", query: "?lang=en", body: "AUDIO 1", status: 422, code: "option_unknown", check: func(p api.Problem) bool {
			return len(p.Errors) == 1 && p.Errors[0].Pointer == "/lang" && p.Errors[0].Code == "option_unknown" && p.Errors[0].Detail != ""
		}},
		{name: "several at once", query: "?priority=high&attention=half&x=1", body: "AUDIO 1", status: 422, code: "option_unknown",
			check: func(p api.Problem) bool { return len(p.Errors) == 3 }},
		{name: "bad value", query: "?priority=high", body: "AUDIO 1", status: 422, code: "option_invalid",
			check: func(p api.Problem) bool { return p.Errors[0].Pointer == "/priority" }},
		{name: "given twice", query: "?name=a&name=b", body: "AUDIO 1", status: 422, code: "option_invalid"},
		{name: "control character", query: "?name=a%00b", body: "AUDIO 1", status: 422, code: "option_invalid"},
		{name: "not UTF-8", query: "?label.a=%ff", body: "AUDIO 1", status: 422, code: "option_invalid"},
		{name: "empty label key", query: "?label.=x", body: "AUDIO 1", status: 422, code: "option_invalid"},
		{name: "broken query", query: "?name=%zz", body: "AUDIO 1", status: 400, code: "malformed_request"},
		{name: "empty body", body: "", status: 400, code: "audio_broken"},
		{name: "channel zero", query: "?channel=0", body: "AUDIO 1", status: 422, code: "option_invalid",
			check: func(p api.Problem) bool { return p.Errors[0].Pointer == "/channel" }},
		{name: "channel as a fraction", contentType: anyForm, parts: []part{{"options", "", `{"channel":1.5}`}, {"file", "a", "AUDIO 1"}}, status: 422, code: "option_invalid"},
		{name: "channel as a list", contentType: anyForm, parts: []part{{"options", "", `{"channel":[1]}`}, {"file", "a", "AUDIO 1"}}, status: 422, code: "option_invalid"},
		{name: "channel word", query: "?channel=left", body: "AUDIO 1", status: 422, code: "option_invalid"},
		{name: "compressed", body: "AUDIO 1", header: []string{"Content-Encoding", "gzip"}, status: 415, code: "media_type_unsupported"},

		{name: "no boundary", contentType: "multipart/form-data", body: "x", status: 400, code: "malformed_request"},
		{name: "other multipart", contentType: "multipart/mixed; boundary=b", body: "x", status: 415, code: "media_type_unsupported"},
		{name: "not multipart at all", contentType: "multipart/form-data; boundary=b", body: "AUDIO 1", status: 400, code: "malformed_request"},
		{name: "form broken off", contentType: "multipart/form-data; boundary=b",
			body: "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nAUDIO 1", status: 400, code: "malformed_request"},
		{name: "much after the form", contentType: "multipart/form-data; boundary=b",
			body:   "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nAUDIO 1\r\n--b--\r\n" + strings.Repeat("x", 200<<10),
			status: 400, code: "malformed_request"},
		{name: "no file", contentType: anyForm, parts: []part{{"options", "", "{}"}}, status: 400, code: "malformed_request"},
		{name: "empty form", contentType: anyForm, status: 400, code: "malformed_request"},
		{name: "options after the file", contentType: anyForm, parts: []part{{"file", "a", "AUDIO 1"}, {"options", "", "{}"}}, status: 400, code: "malformed_request",
			check: func(p api.Problem) bool { return strings.Contains(p.Detail, "after the file") }},
		{name: "two files", contentType: anyForm, parts: []part{{"file", "a", "AUDIO 1"}, {"file", "b", "AUDIO 2"}}, status: 400, code: "malformed_request",
			check: func(p api.Problem) bool { return strings.Contains(p.Detail, "more than one file") }},
		{name: "options twice", contentType: anyForm, parts: []part{{"options", "", "{}"}, {"options", "", "{}"}}, status: 400, code: "malformed_request"},
		{name: "an option as a part", contentType: anyForm, parts: []part{{"priority", "", "bulk"}, {"file", "a", "AUDIO 1"}}, status: 422, code: "option_unknown",
			check: func(p api.Problem) bool {
				return p.Errors[0].Pointer == "/priority" && strings.Contains(p.Hint, "options")
			}},
		{name: "a part after the file", contentType: anyForm, parts: []part{{"file", "a", "AUDIO 1"}, {"priority", "", "bulk"}}, status: 422, code: "option_unknown"},
		{name: "options are no JSON", contentType: anyForm, parts: []part{{"options", "", "name=x"}, {"file", "a", "AUDIO 1"}}, status: 400, code: "malformed_request"},
		{name: "options are a list", contentType: anyForm, parts: []part{{"options", "", "[]"}, {"file", "a", "AUDIO 1"}}, status: 400, code: "malformed_request"},
		{name: "options and more", contentType: anyForm, parts: []part{{"options", "", "{} {}"}, {"file", "a", "AUDIO 1"}}, status: 400, code: "malformed_request"},
		{name: "options too long", contentType: anyForm, parts: []part{{"options", "", strings.Repeat(" ", 65<<10)}, {"file", "a", "AUDIO 1"}}, status: 400, code: "malformed_request"},
		{name: "unknown option", contentType: anyForm, parts: []part{{"options", "", `{"a/b~c":1}`}, {"file", "a", "AUDIO 1"}}, status: 422, code: "option_unknown",
			check: func(p api.Problem) bool { return p.Errors[0].Pointer == "/a~1b~0c" }},
		{name: "option of the wrong type", contentType: anyForm, parts: []part{{"options", "", `{"priority":1}`}, {"file", "a", "AUDIO 1"}}, status: 422, code: "option_invalid"},
		{name: "label of the wrong type", contentType: anyForm, parts: []part{{"options", "", `{"labels":{"a":1}}`}, {"file", "a", "AUDIO 1"}}, status: 422, code: "option_invalid",
			check: func(p api.Problem) bool { return p.Errors[0].Pointer == "/labels/a" }},
		{name: "labels of the wrong type", contentType: anyForm, parts: []part{{"options", "", `{"labels":[]}`}, {"file", "a", "AUDIO 1"}}, status: 422, code: "option_invalid"},
		{name: "in query and options", query: "?priority=bulk", contentType: anyForm, parts: []part{{"options", "", `{"priority":"bulk"}`}, {"file", "a", "AUDIO 1"}},
			status: 422, code: "option_invalid"},
		{name: "name too long", query: "?name=" + strings.Repeat("x", 1025), body: "AUDIO 1", status: 422, code: "option_invalid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, test.change)
			var body io.Reader = strings.NewReader(test.body)
			contentType := test.contentType
			if contentType == anyForm {
				body, contentType = form(t, test.parts...)
			}
			p := r.do("POST", "/v1/jobs"+test.query, body, append([]string{"Content-Type", contentType}, test.header...)...).problem(t, test.status, test.code)
			if test.check != nil && !test.check(p) {
				t.Errorf("problem: %+v", p)
			}
			r.store.fail(nil)
			r.nothing()
			if r.bell.rings.Load() != 0 {
				t.Error("the dispatcher was woken for nothing")
			}
		})
	}
}

func TestLongestAudioPasses(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	if job := r.submit("3600.000", ""); job.Audio.DurationSeconds != 3600 {
		t.Errorf("job: %+v", job)
	}
}

// Without a wait of its own, queue_full says when the system will have done what is too much, at the speed that was measured.
func TestQueueFullComputesRetryAfter(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) {
		r.intake.Limits.Queue.Jobs = 3
		r.intake.Rate = func() (float64, bool) { return 20, true }
		r.store.backlog.Classes = map[aviary.Priority]aviary.ClassBacklog{"bulk": {Amount: aviary.Amount{Jobs: 4, Audio: 1600 * time.Second}}}
	})
	p := r.do("POST", "/v1/jobs", strings.NewReader("AUDIO 1")).problem(t, 503, aviary.CodeQueueFull)
	if p.RetryAfterSeconds != 40 || *p.Limit != 3 || *p.Actual != 5 { // two jobs of 400 s, at 20
		t.Errorf("problem: %+v", p)
	}
	r.nothing()
}

func TestDrainRefusesUploadsOnly(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	job := r.submit("1", "")
	r.server.Drain()
	r.do("POST", "/v1/jobs", strings.NewReader("AUDIO 1")).problem(t, 503, aviary.CodeDraining)
	r.get("/v1/jobs/"+job.ID).job(t, 200)
	if a := r.get("/readyz"); a.status != 503 {
		t.Errorf("readyz: %d", a.status)
	}
	if a := r.get("/livez"); a.status != 200 {
		t.Errorf("livez: %d", a.status)
	}
}

// An upload of unknown length is counted as it comes.
func TestSubmitChunked(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	unknown := func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) }
	r.do("POST", "/v1/jobs", unknown("AUDIO 3")).job(t, 202)
	body, contentType := form(t, part{"options", "", "{}"}, part{"file", "a", "AUDIO 4"})
	r.do("POST", "/v1/jobs", io.MultiReader(body), "Content-Type", contentType).job(t, 202)

	before := r.store.count()
	r.do("POST", "/v1/jobs", io.MultiReader(strings.NewReader(strings.Repeat("x", 3<<20)))).problem(t, 413, aviary.CodeUploadTooLarge)
	r.do("POST", "/v1/jobs", unknown("")).problem(t, 415, aviary.CodeMediaTypeUnsupported)
	if open, keys := r.blobs.state(); r.store.count() != before || open != 0 || len(keys) != 2*before {
		t.Error("a refusal left something behind")
	}
}
