package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

// The job object has the contract's members in each state, and no other.
func TestJobObject(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	first := r.submit("30", "")
	id := r.submit("40.5", "?name=a.wav&label.k=v").ID
	problem := &aviary.Problem{Code: aviary.CodeAudioBroken, Title: aviary.CodeAudioBroken.Title(), Detail: "At 3 s.", Limit: 1, Actual: 2.00049, Unit: "seconds"}
	always := []string{"id", "object", "status", "name", "created_at", "audio", "priority", "labels", "progress", "attempt", "max_attempts", "links"}
	for _, test := range []struct {
		name   string
		change func(*aviary.Job)
		more   []string
		check  func(j api.Job) bool
	}{
		{"queued", func(*aviary.Job) {}, []string{"queue"}, func(j api.Job) bool {
			return j.Queue.Position == 2 && j.Queue.AudioSecondsAhead == 30 && j.Attempt == 0 && j.Progress.Fraction == 0
		}},
		{"running", func(j *aviary.Job) {
			j.State, j.Phase, j.Attempt, j.Lost = aviary.StateRunning, aviary.PhaseTranscribing, 3, 2
			j.StartedAt, j.Progress = time.Now(), 10125*time.Millisecond
		}, []string{"phase", "started_at", "lost"}, func(j api.Job) bool {
			return j.Phase == "transcribing" && j.Progress == api.Progress{Fraction: .25, AudioSecondsDone: 10.125, AudioSecondsTotal: 40.5} &&
				j.Attempt == 1 && j.Lost == 2 // lost workers cost no attempt
		}},
		{"stopping", func(j *aviary.Job) { j.CancelRequested = true }, []string{"phase", "started_at", "lost", "cancel_requested"}, nil},
		{"failed", func(j *aviary.Job) {
			j.State, j.Problem, j.Fails, j.FinishedAt = aviary.StateFailed, problem, 1, time.Now()
		}, []string{"started_at", "finished_at", "lost", "error"}, func(j api.Job) bool {
			e := j.Error
			return e.Code == "audio_broken" && e.Detail == "At 3 s." && *e.Actual == 2 && e.Status == 0 && e.RequestID == "" && e.Type != "" && j.Attempt == 1
		}},
		{"succeeded", func(j *aviary.Job) {
			j.State, j.Problem, j.Progress = aviary.StateSucceeded, nil, 0
			j.Attention = &aviary.Attention{Mode: "local", Context: []int{128, 128}, Reason: "300 s or longer"}
		}, []string{"started_at", "finished_at", "lost", "attention"}, func(j api.Job) bool {
			return j.Progress.Fraction == 1 && j.Progress.AudioSecondsDone == 40.5 && j.Attention.Mode == "local" && j.Attempt == 2
		}},
	} {
		r.store.set(id, test.change)
		a := r.get("/v1/jobs/" + id)
		job := a.job(t, 200)
		got, want := slices.Sorted(maps.Keys(a.object(t))), slices.Sorted(slices.Values(slices.Concat(always, test.more)))
		if !slices.Equal(got, want) {
			t.Errorf("%s: members\n got %v\nwant %v", test.name, got, want)
		}
		if test.check != nil && !test.check(job) {
			t.Errorf("%s: %s", test.name, a.body)
		}
		for _, stamp := range regexp.MustCompile(`"\w+_at":"([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
			if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z$`).MatchString(stamp[1]) {
				t.Errorf("%s: time %s", test.name, stamp[1])
			}
		}
	}
	links := first.Links
	if links.Self != "/v1/jobs/"+first.ID || r.get(links.Attempts).status != 200 || r.get(links.Transcript).status != 409 ||
		r.do("POST", links.Cancel, nil).status != 200 || r.do("POST", links.Retry, nil).status != 202 {
		t.Errorf("links: %+v", links)
	}
}

func TestJobConditional(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("600", "").ID
	a := r.get("/v1/jobs/" + id)
	tag := a.header.Get("ETag")
	if a.header.Get("Retry-After") != "20" { // 600 s at 30 times real time
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	for _, seen := range []string{tag, strings.TrimPrefix(tag, "W/"), `"x", ` + tag, "*"} {
		a = r.get("/v1/jobs/"+id, "If-None-Match", seen)
		if a.status != 304 || a.body != "" || a.header.Get("ETag") != tag || a.header.Get("Retry-After") == "" {
			t.Errorf("If-None-Match %s: %+v", seen, a)
		}
	}
	r.get("/v1/jobs/"+id, "If-None-Match", `W/"77"`).job(t, 200)
	r.finish(id, aviary.Transcript{})
	a = r.get("/v1/jobs/"+id, "If-None-Match", tag)
	if a.job(t, 200); a.header.Get("ETag") == tag || a.header.Get("Retry-After") != "" {
		t.Errorf("a final job: %v", a.header)
	}
	if head := r.do("HEAD", "/v1/jobs/"+id, nil); head.status != 200 || head.body != "" || head.header.Get("Content-Length") != a.header.Get("Content-Length") {
		t.Errorf("HEAD: %+v", head)
	}
}

func TestLongPoll(t *testing.T) {
	t.Parallel()
	// poll makes a request in the background and returns how long it took in all, with the answer.
	type outcome struct {
		reply
		took time.Duration
	}
	poll := func(r *rig, path string, headers ...string) chan outcome {
		done := make(chan outcome, 1)
		began := time.Now()
		go func() { done <- outcome{r.get(path, headers...), time.Since(began)} }()
		return done
	}
	t.Run("a change wakes it within the interval", func(t *testing.T) {
		inBubble(t, nil, func(r *rig) {
			id := r.submit("1", "").ID
			p := poll(r, "/v1/jobs/"+id+"?wait=60")
			time.Sleep(10*time.Second + time.Millisecond)
			r.store.set(id, func(j *aviary.Job) { j.State = aviary.StateRunning })
			got := <-p
			if got.job(r.t, 200).Status != aviary.StateRunning || got.took > 10*time.Second+101*time.Millisecond {
				r.t.Errorf("after %v: %+v", got.took, got.reply)
			}
		})
	})
	t.Run("it ends unchanged with 200, or 304 for those who know", func(t *testing.T) {
		inBubble(t, nil, func(r *rig) {
			id := r.submit("1", "").ID
			got := <-poll(r, "/v1/jobs/"+id+"?wait=5")
			got.job(r.t, 200)
			tag := got.header.Get("ETag")
			if got.took != 5*time.Second {
				r.t.Errorf("took %v", got.took)
			}
			if got = <-poll(r, "/v1/jobs/"+id+"?wait=60", "If-None-Match", tag); got.status != 304 || got.took != time.Minute {
				r.t.Errorf("after %v: %+v", got.took, got.reply)
			}
			if got = <-poll(r, "/v1/jobs/"+id+"?wait=60", "If-None-Match", `W/"0"`); got.status != 200 || got.took != 0 {
				r.t.Errorf("old tag: after %v: %+v", got.took, got.reply)
			}
			r.finish(id, aviary.Transcript{})
			if got = <-poll(r, "/v1/jobs/"+id+"?wait=60"); got.status != 200 || got.took != 0 {
				r.t.Errorf("final: after %v: %+v", got.took, got.reply)
			}
		})
	})
	t.Run("changes through this server wake it at once", func(t *testing.T) {
		inBubble(t, nil, func(r *rig) {
			id := r.submit("1", "").ID
			p := poll(r, "/v1/jobs/"+id+"?wait=60")
			synctest.Wait()
			began := time.Now()
			r.do("POST", "/v1/jobs/"+id+"/cancel", nil).job(r.t, 200)
			if got := <-p; got.job(r.t, 200).Status != aviary.StateCanceled || time.Since(began) != 0 {
				r.t.Errorf("after %v: %+v", time.Since(began), got.reply)
			}
			r.do("POST", "/v1/jobs/"+id+"/retry", nil)
			p = poll(r, "/v1/jobs/"+id+"?wait=60")
			synctest.Wait()
			r.do("DELETE", "/v1/jobs/"+id+"?force=1", nil)
			(<-p).problem(r.t, 410, aviary.CodeJobExpired)
		})
	})
	t.Run("a drain answers all", func(t *testing.T) {
		inBubble(t, nil, func(r *rig) {
			id := r.submit("1", "").ID
			p := poll(r, "/v1/jobs/"+id+"?wait=60")
			synctest.Wait()
			r.server.Drain()
			if got := <-p; got.status != 200 || got.took != 0 {
				r.t.Errorf("after %v: %+v", got.took, got.reply)
			}
		})
	})
	t.Run("many share one look at the store", func(t *testing.T) {
		inBubble(t, nil, func(r *rig) {
			id := r.submit("1", "").ID
			var all []chan outcome
			for range 50 {
				all = append(all, poll(r, "/v1/jobs/"+id+"?wait=10"))
			}
			for _, p := range all {
				(<-p).job(r.t, 200)
			}
			// Each request looks when it comes and when it ends; the 10 s between cost one look per 100 ms, not fifty.
			if n := r.store.lookups.Load(); n > 2*50+105 {
				r.t.Errorf("%d lookups", n)
			}
		})
	})
	t.Run("a store that fails meanwhile is an error at the end", func(t *testing.T) {
		inBubble(t, nil, func(r *rig) {
			id := r.submit("1", "").ID
			p := poll(r, "/v1/jobs/"+id+"?wait=5")
			synctest.Wait()
			r.store.fail(errors.New("away"))
			got := <-p
			got.problem(r.t, 500, aviary.CodeInternal)
			if got.took != 5*time.Second {
				r.t.Errorf("took %v", got.took)
			}
		})
	})
}

func TestJobErrors(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("1", "").ID
	for _, test := range []struct {
		method, path string
		status       int
		code         aviary.Code
	}{
		{"GET", "/v1/jobs/job_none", 404, aviary.CodeNotFound},
		{"GET", "/v1/jobs/a%2Fb", 404, aviary.CodeNotFound},
		{"GET", "/v1/jobs/a%00b", 404, aviary.CodeNotFound},
		{"GET", "/v1/jobs/" + strings.Repeat("x", 65), 404, aviary.CodeNotFound},
		{"GET", "/v1/jobs/job_none/transcript", 404, aviary.CodeNotFound},
		{"GET", "/v1/jobs/job_none/attempts", 404, aviary.CodeNotFound},
		{"POST", "/v1/jobs/job_none/cancel", 404, aviary.CodeNotFound},
		{"POST", "/v1/jobs/job_none/retry", 404, aviary.CodeNotFound},
		{"DELETE", "/v1/jobs/job_none", 404, aviary.CodeNotFound},
		{"DELETE", "/v1/jobs/a%00b", 404, aviary.CodeNotFound},
		{"GET", "/v1/jobs/" + id + "?wait=61", 422, aviary.CodeOptionInvalid},
		{"GET", "/v1/jobs/" + id + "?wait=-1", 422, aviary.CodeOptionInvalid},
		{"GET", "/v1/jobs/" + id + "?wait=NaN", 422, aviary.CodeOptionInvalid},
		{"GET", "/v1/jobs/" + id + "?wait=Inf", 422, aviary.CodeOptionInvalid},
		{"GET", "/v1/jobs/" + id + "?wait=soon", 422, aviary.CodeOptionInvalid},
		{"GET", "/v1/jobs/" + id + "?wiat=5", 422, aviary.CodeOptionUnknown},
		{"GET", "/v1/jobs/" + id + "?wait=1&wait=2", 422, aviary.CodeOptionInvalid},
		{"GET", "/v1/jobs/" + id + "?wait=%zz", 400, aviary.CodeMalformedRequest},
		{"DELETE", "/v1/jobs/" + id, 409, aviary.CodeJobActive},
		{"DELETE", "/v1/jobs/" + id + "?force=perhaps", 422, aviary.CodeOptionInvalid},
		{"POST", "/v1/jobs/" + id + "/retry", 409, aviary.CodeStateConflict},
		{"POST", "/v1/jobs/" + id + "/retry?x=1", 422, aviary.CodeOptionUnknown},
		{"GET", "/v1/jobs/" + id + "/attempts?x=1", 422, aviary.CodeOptionUnknown},
		{"GET", "/v1/queue?x=1", 422, aviary.CodeOptionUnknown},
	} {
		p := r.do(test.method, test.path, nil).problem(t, test.status, test.code)
		if test.code == aviary.CodeStateConflict && (p.Job == nil || p.Job.Status != aviary.StateQueued) {
			t.Errorf("%s %s: %+v", test.method, test.path, p)
		}
	}
}

func TestCancelRetryDelete(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("1", "").ID
	path := "/v1/jobs/" + id
	r.store.set(id, func(j *aviary.Job) { j.State = aviary.StateRunning })
	for range 2 { // it is idempotent
		if job := r.do("POST", path+"/cancel", nil).job(t, 202); !job.CancelRequested || job.Status != aviary.StateRunning {
			t.Errorf("stopping: %+v", job)
		}
	}
	r.store.set(id, func(j *aviary.Job) { j.State, j.CancelRequested = aviary.StateCanceled, false })
	if job := r.do("POST", path+"/cancel", nil).job(t, 200); job.Status != aviary.StateCanceled {
		t.Errorf("stopped: %+v", job)
	}
	rings := r.bell.rings.Load()
	a := r.do("POST", path+"/retry", nil)
	if job := a.job(t, 202); job.Status != aviary.StateQueued || job.MaxAttempts != 4 || a.header.Get("Location") != path || r.bell.rings.Load() != rings+1 {
		t.Errorf("retried: %+v", a)
	}
	p := r.do("DELETE", path, nil).problem(t, 409, aviary.CodeJobActive)
	if !strings.Contains(p.Hint, "force") {
		t.Errorf("problem: %+v", p)
	}
	if a := r.do("DELETE", path+"?force=true", nil); a.status != 204 || a.body != "" {
		t.Errorf("deleted: %+v", a)
	}
	if _, keys := r.blobs.state(); len(keys) != 0 {
		t.Errorf("blobs left: %v", keys)
	}
	for _, request := range []string{"GET ", "GET /transcript", "GET /attempts", "POST /cancel", "POST /retry"} {
		method, rest, _ := strings.Cut(request, " ")
		p := r.do(method, path+rest, nil).problem(t, 410, aviary.CodeJobExpired)
		if p.Job == nil || p.Job.ID != id || p.Job.Status != aviary.StateExpired || p.Job.CreatedAt.IsZero() {
			t.Errorf("%s: no tombstone in %+v", request, p)
		}
	}
}

func TestAttempts(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("1", "").ID
	if a := r.get("/v1/jobs/" + id + "/attempts"); a.body != `{"object":"list","data":[]}`+"\n" {
		t.Errorf("none: %s", a.body)
	}
	r.store.attempts[id] = []aviary.Attempt{
		{AttemptRef: aviary.AttemptRef{JobID: id, Attempt: 1}, Worker: "w1", Device: "cpu", StartedAt: time.Unix(10, 0), EndedAt: time.Unix(20, 0),
			Outcome: aviary.OutcomeRetried, Problem: &aviary.Problem{Code: aviary.CodeEngineFailed}},
		{AttemptRef: aviary.AttemptRef{JobID: id, Attempt: 2}, Worker: "w2", Device: "cuda:0", StartedAt: time.Unix(30, 0)},
	}
	var list api.AttemptList
	if err := json.Unmarshal([]byte(r.get("/v1/jobs/"+id+"/attempts").body), &list); err != nil {
		t.Fatal(err)
	}
	one, two := list.Data[0], list.Data[1]
	if one.Number != 1 || one.Outcome != "retried" || one.Error.Code != "engine_failed" || two.Outcome != "" || !two.EndedAt.IsZero() || two.Device != "cuda:0" {
		t.Errorf("attempts: %+v", list)
	}
}

func (r *rig) list(query string) (api.JobList, reply) {
	r.t.Helper()
	a := r.get("/v1/jobs" + query)
	var list api.JobList
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != 200 {
		r.t.Fatalf("list %s: %+v (%v)", query, a, err)
	}
	return list, a
}

func TestList(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	if _, a := r.list(""); a.body != `{"object":"list","data":[],"has_more":false}`+"\n" {
		t.Errorf("none: %s", a.body)
	}
	var ids []string
	for i := range 7 {
		ids = append(ids, r.submit("1", fmt.Sprintf("?label.team=%d&label.k%%3Dx=1", i%2)).ID)
	}
	r.store.set(ids[6], func(j *aviary.Job) { j.State = aviary.StateFailed })
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	middle := r.store.jobs[ids[3]].CreatedAt.UTC().Format(time.RFC3339Nano)
	for _, test := range []struct {
		query string
		want  []string
	}{
		{"", newest},
		{"?sort=-created_at", newest},
		{"?sort=created_at", ids},
		{"?status=failed", ids[6:]},
		{"?status=failed,queued&label.team=0&label.k%3Dx=1", []string{ids[6], ids[4], ids[2], ids[0]}},
		{"?created_after=" + middle, newest[:3]},
		{"?label.team=5", []string{}},
	} {
		list, _ := r.list(test.query)
		got := []string{}
		for _, job := range list.Data {
			got = append(got, job.ID)
			if job.Queue != nil {
				t.Error("a list costs one query, not one per job")
			}
		}
		if !slices.Equal(got, test.want) || list.HasMore || list.NextCursor != "" {
			t.Errorf("%s: got %v, want %v", test.query, got, test.want)
		}
	}

	// Pages: following the link, or the cursor with or without the filters, gives all of the list once.
	link := regexp.MustCompile(`^<(/v1/jobs\?[^>]*)>; rel="next"$`)
	for name, next := range map[string]func(list api.JobList, a reply) string{
		"link":   func(_ api.JobList, a reply) string { return link.FindStringSubmatch(a.header.Get("Link"))[1] },
		"cursor": func(l api.JobList, _ reply) string { return "/v1/jobs?limit=2&cursor=" + l.NextCursor },
		"cursor with filters": func(l api.JobList, _ reply) string {
			return "/v1/jobs?limit=2&label.team=0&sort=created_at&cursor=" + l.NextCursor
		},
	} {
		got := []string{}
		for path := "/v1/jobs?limit=2&label.team=0&sort=created_at"; ; {
			list, a := r.list(strings.TrimPrefix(path, "/v1/jobs"))
			for _, job := range list.Data {
				got = append(got, job.ID)
			}
			if !list.HasMore {
				break
			}
			path = next(list, a)
		}
		if want := []string{ids[0], ids[2], ids[4], ids[6]}; !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}

	page, _ := r.list("?limit=1&status=queued")
	for _, query := range []string{"limit=0", "limit=201", "limit=x", "status=done", "status=queued,", "created_after=yesterday",
		"created_after=9999-12-31T23:59:59-23:00", "sort=name", "cursor=x", "cursor=" + url.QueryEscape("e30"), "label.=x", "label.a=%00",
		"status=failed&cursor=" + page.NextCursor} {
		p := r.get("/v1/jobs?"+query).problem(t, 422, aviary.CodeOptionInvalid)
		if len(p.Errors) != 1 {
			t.Errorf("%s: %+v", query, p)
		}
	}
	if p := r.get("/v1/jobs?state=queued").problem(t, 422, aviary.CodeOptionUnknown); p.Errors[0].Pointer != "/state" {
		t.Errorf("problem: %+v", p)
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	var measured atomic.Bool
	r := start(t, func(r *rig) {
		r.config.WorkerRTFx, r.config.DrainTarget = 10, time.Minute
		r.intake.Rate = func() (float64, bool) { return 2.5, measured.Load() }
	})
	a := r.get("/v1/queue")
	if o := a.object(t); o["throughput_audio_seconds_per_second"] != nil || o["expected_wait_seconds"] != nil || o["demand_worker_equivalents"] != 0.0 || o["workers_wanted"] != 0.0 || o["object"] != "queue" {
		t.Errorf("idle: %s", a.body)
	}
	r.store.backlog = aviary.Backlog{
		Classes: map[aviary.Priority]aviary.ClassBacklog{
			"interactive": {Amount: aviary.Amount{Jobs: 2, Audio: 90 * time.Second}, Oldest: 3 * time.Second},
			"bulk":        {Amount: aviary.Amount{Jobs: 5, Audio: 1000*time.Second + 1}, Oldest: time.Hour},
		},
		Running: aviary.Amount{Jobs: 1, Audio: 110500 * time.Microsecond}, Oldest: time.Hour,
	}
	measured.Store(true)
	want := map[string]any{"object": "queue", "throughput_audio_seconds_per_second": 2.5, "expected_wait_seconds": 436.044,
		"jobs_queued": 7.0, "jobs_running": 1.0, "audio_seconds_queued": 1090.0, "audio_seconds_running": .111,
		"oldest_age_seconds": 3600.0, "jobs_queued_interactive": 2.0, "jobs_queued_bulk": 5.0, "audio_seconds_queued_interactive": 90.0,
		"audio_seconds_queued_bulk": 1000.0, "oldest_age_seconds_interactive": 3.0, "oldest_age_seconds_bulk": 3600.0,
		"demand_worker_equivalents": 1.817, "workers_wanted": 2.0} // 1090.1105 s of work, 600 s per worker in the target
	if got := r.get("/v1/queue").object(t); !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// A second of running work is not idle.
	r.store.backlog = aviary.Backlog{Running: aviary.Amount{Jobs: 1, Audio: time.Millisecond}}
	if got := r.get("/v1/queue").object(t); got["demand_worker_equivalents"] != .001 || got["workers_wanted"] != 1.0 {
		t.Errorf("nearly idle: %v", got)
	}
	r.store.fail(errors.New("away"))
	r.get("/v1/queue").problem(t, 500, aviary.CodeInternal)
}

// A body where none is expected is not waited for without end.
func TestStalledBodyOfAnotherRequest(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		c := r.raw()
		began := time.Now()
		c.write("POST /v1/jobs/job_none/cancel HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
		c.read().problem(r.t, http.StatusNotFound, aviary.CodeNotFound)
		if took := time.Since(began); took > 5*time.Second {
			r.t.Errorf("answered after %v", took)
		}
	})
}
