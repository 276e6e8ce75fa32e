package aviary_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// keyed is a submission with a key.
func keyed(key string) aviary.Submission {
	return aviary.Submission{Key: key, Options: aviary.Options{Name: "a.wav"}}
}

// desk is an intake whose ids count up, and what stands around it.
type desk struct {
	*testing.T
	*aviary.Intake
	blobs   *shelf
	rows    *rows
	witness *witness
	decodes int
}

func newDesk(t *testing.T) *desk {
	d := &desk{T: t}
	h := lasting(time.Second)
	h.enter = func(aviary.Normalizing) { d.decodes++ }
	d.Intake, d.blobs, d.rows, d.witness = newIntake(h)
	ids := 0
	d.NewID = func() string { ids++; return fmt.Sprintf("job_%d", ids) }
	return d
}

func (d *desk) submit(body string, s aviary.Submission) (aviary.Job, bool, error) {
	return d.Submit(d.Context(), strings.NewReader(body), s)
}

// stands checks how many jobs there are, and that there are two blobs for each and nothing else.
func (d *desk) stands(jobs int) {
	d.Helper()
	if len(d.rows.jobs) != jobs || len(d.blobs.blobs) != 2*jobs || d.blobs.staged != 0 {
		d.Errorf("%d jobs, %d blobs, %d staged; want %d jobs", len(d.rows.jobs), len(d.blobs.blobs), d.blobs.staged, jobs)
	}
}

func TestARepeatedRequestIsAnsweredWithItsJob(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first, replayed, err := d.submit("audio", keyed("k"))
	if err != nil || replayed || first.Tenant != aviary.DefaultTenant || first.RequestKey != "k" || len(first.RequestHash) != 64 {
		t.Fatalf("%+v, %v, %v", first, replayed, err)
	}
	for range 3 {
		again, replayed, err := d.submit("audio", keyed("k"))
		if err != nil || !replayed || again.ID != first.ID {
			t.Errorf("%+v, %v, %v", again, replayed, err)
		}
	}
	d.stands(1)
	if d.decodes != 1 || d.witness.accepted != 1 || d.witness.woken != 1 || len(d.witness.refused) != 0 {
		t.Errorf("%d decodes, %+v: a repetition counts for nothing", d.decodes, d.witness)
	}
	// The same request without a key, with another key, and of somebody else are requests of their own.
	other := keyed("k")
	other.Tenant = "somebody else"
	for i, s := range []aviary.Submission{keyed(""), keyed(""), keyed("l"), other} {
		if job, replayed, err := d.submit("audio", s); err != nil || replayed || job.ID == first.ID {
			t.Errorf("%+v, %v, %v", job, replayed, err)
		}
		d.stands(2 + i)
	}
}

// A repetition needs no room: it is answered while the queue and the disk are full, and of a job that has expired too.
func TestARepetitionTakesNoRoom(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first, _, err := d.submit("audio", keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	d.blobs.free = 0
	d.Limits.Queue.Jobs, d.rows.backlog = 1, waiting(1, time.Second)
	first.State = aviary.StateExpired
	d.rows.jobs[first.ID] = first
	if again, replayed, err := d.submit("audio", keyed("k")); err != nil || !replayed || again.State != aviary.StateExpired {
		t.Errorf("%+v, %v, %v", again, replayed, err)
	}
	if _, _, err := d.submit("audio", keyed("new")); aviary.CodeOf(err) != aviary.CodeStorageFull {
		t.Errorf("a new request: %v", err)
	}
	if _, _, err := d.submit("01234567890", keyed("k")); aviary.CodeOf(err) != aviary.CodeUploadTooLarge {
		t.Errorf("a repetition of endless length: %v", err)
	}
}

func TestAKeyBelongsToOneRequest(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(body *string, o *aviary.Options){
		"another file":    func(b *string, _ *aviary.Options) { *b = "voice" },
		"another name":    func(_ *string, o *aviary.Options) { o.Name = "b.wav" },
		"a priority":      func(_ *string, o *aviary.Options) { o.Priority = aviary.PriorityBulk },
		"an attention":    func(_ *string, o *aviary.Options) { o.Attention = aviary.AttentionLocal },
		"a channel":       func(_ *string, o *aviary.Options) { o.Channel = 1 },
		"a label":         func(_ *string, o *aviary.Options) { o.Labels = map[string]string{"a": "c", "b": "b"} },
		"a label's value": func(_ *string, o *aviary.Options) { o.Labels = map[string]string{"a": "c"} },
	} {
		d := newDesk(t)
		base := keyed("k")
		base.Options.Labels = map[string]string{"a": "b"}
		if _, _, err := d.submit("audio", base); err != nil {
			t.Fatal(err)
		}
		body, other := "audio", base
		change(&body, &other.Options)
		_, _, err := d.submit(body, other)
		var e *aviary.Error
		if !errors.As(err, &e) || e.Code != aviary.CodeIdempotencyKeyReused || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		d.stands(1)
	}
	// What is said in another way is the same: the default priority, and a name of an attention in capitals.
	d := newDesk(t)
	a, b := keyed("k"), keyed("k")
	a.Options.Attention, b.Options.Attention, b.Options.Priority, b.Options.Labels = "LOCAL", aviary.AttentionLocal, aviary.PriorityInteractive, map[string]string{}
	if _, _, err := d.submit("audio", a); err != nil {
		t.Fatal(err)
	}
	if _, replayed, err := d.submit("audio", b); err != nil || !replayed {
		t.Errorf("%v, %v", replayed, err)
	}
}

// The hash of a request is stored: were it made in another way, repetitions of requests to the version before would be refused.
func TestRequestHashIsStable(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	s := aviary.Submission{Key: "k", Options: aviary.Options{Name: "Zoë <1>.wav", Attention: "full", Channel: 2, Priority: "bulk", Labels: map[string]string{"b": "2", "a": "1"}}}
	job, _, err := d.submit("audio", s)
	// printf '%s\n%s' "$(printf audio | sha256sum | cut -c-64)" '{"name":"Zoë \u003c1\u003e.wav","attention":"full","channel":2,"priority":"bulk","labels":{"a":"1","b":"2"}}' | sha256sum
	const want = "f1c460905ce4c23ab32d81b9d7051e5ee24e07532deb87c4059235d66e240313"
	if err != nil || job.RequestHash != want {
		t.Errorf("%s, %v", job.RequestHash, err)
	}
}

func TestAKeyOfARefusedRequestIsFree(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.rows.err = aviary.Errorf(aviary.CodeQuotaExceeded, "", "")
	if _, _, err := d.submit("audio", keyed("k")); aviary.CodeOf(err) != aviary.CodeQuotaExceeded {
		t.Fatal(err)
	}
	d.stands(0)
	d.rows.err = nil
	if _, replayed, err := d.submit("other", keyed("k")); err != nil || replayed {
		t.Errorf("%v, %v", replayed, err)
	}
	d.stands(1)
}

// While a request is worked on, its repetition hears so at once, and when to come back; afterwards it is answered.
func TestARepetitionBesideItsRequest(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	body, feed := io.Pipe()
	done := make(chan error)
	go func() {
		_, _, err := d.Submit(t.Context(), body, keyed("k"))
		done <- err
	}()
	if _, err := feed.Write([]byte("au")); err != nil { // so that the request is under way
		t.Fatal(err)
	}
	_, _, err := d.submit("audio", keyed("k"))
	var e *aviary.Error
	if !errors.As(err, &e) || e.Code != aviary.CodeIdempotencyInProgress || e.Wait <= 0 {
		t.Errorf("%v", err)
	}
	_, _ = feed.Write([]byte("dio"))
	_ = feed.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if job, replayed, err := d.submit("audio", keyed("k")); err != nil || !replayed || job.ID != "job_1" {
		t.Errorf("%+v, %v, %v", job, replayed, err)
	}
	d.stands(1)
}

// Two processes get the same request at the same time: one job comes of it, whenever the other one is faster.
func TestTwoProcessesWithOneRequest(t *testing.T) {
	t.Parallel()
	for _, look := range []int{1, 2} { // the other one commits before the first look at the store, or during the upload
		d := newDesk(t)
		looks := 0
		d.rows.looked = func(_ string, jobs map[string]aviary.Job) {
			if looks++; looks == look {
				winner := winnerOf(t)
				jobs[winner.ID] = winner
			}
		}
		job, replayed, err := d.submit("audio", keyed("k"))
		if err != nil || !replayed || job.ID != "job_winner" || d.decodes != 0 || len(d.blobs.blobs) != 0 || d.blobs.staged != 0 {
			t.Errorf("look %d: %+v, %v, %v; %d decodes, %d blobs, %d staged", look, job, replayed, err, d.decodes, len(d.blobs.blobs), d.blobs.staged)
		}
	}
	// Faster by a hair: the row is there when ours is to be made.
	for body, want := range map[string]aviary.Code{"audio": "", "other": aviary.CodeIdempotencyKeyReused} {
		d := newDesk(t)
		d.Prober = hearing{audio: aviary.Audio{Duration: time.Second}, enter: func(aviary.Normalizing) {
			winner := winnerOf(t)
			d.rows.jobs[winner.ID] = winner
		}}
		job, replayed, err := d.submit(body, keyed("k"))
		if aviary.CodeOf(err) != want || replayed != (want == "") || want == "" && job.ID != "job_winner" {
			t.Errorf("%s: %+v, %v, %v", body, job, replayed, err)
		}
		if len(d.blobs.blobs) != 0 || d.blobs.staged != 0 || len(d.rows.jobs) != 1 {
			t.Errorf("%s: the slower one left blobs %v, %d staged, %d rows", body, d.blobs.blobs, d.blobs.staged, len(d.rows.jobs))
		}
	}
}

// winnerOf is the job that another process makes of the request.
func winnerOf(t *testing.T) aviary.Job {
	winner := newDesk(t)
	winner.NewID = func() string { return "job_winner" }
	job, _, err := winner.submit("audio", keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// The store may try a commit again whose answer was lost, and find the key taken by the very job: that is no other request.
func TestOurOwnRowIsNoRepetition(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Store = twice{d.rows}
	job, replayed, err := d.submit("audio", keyed("k"))
	if err != nil || replayed || job.ID != "job_1" || d.witness.accepted != 1 || d.witness.woken != 1 {
		t.Errorf("%+v, %v, %v, %+v", job, replayed, err, d.witness)
	}
	d.stands(1)
}

// twice is a store that commits, hears nothing, and commits again.
type twice struct{ *rows }

func (s twice) CreateJob(ctx context.Context, j aviary.Job, l aviary.QueueLimits) (aviary.Job, error) {
	_, _ = s.rows.CreateJob(ctx, j, l)
	return s.rows.CreateJob(ctx, j, l)
}

func TestManyRepetitionsAtOnceMakeOneJob(t *testing.T) {
	t.Parallel()
	in, _, rows, _ := newIntake(lasting(time.Second))
	in.Blobs, in.Observer, in.Waker = &lockers{}, deaf{}, deaf{}
	var mu sync.Mutex
	ids := 0
	in.NewID = func() string { mu.Lock(); defer mu.Unlock(); ids++; return fmt.Sprintf("job_%d", ids) }
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for {
				_, _, err := in.Submit(t.Context(), strings.NewReader("audio"), keyed("k"))
				if aviary.CodeOf(err) == aviary.CodeIdempotencyInProgress {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	wg.Wait()
	if len(rows.jobs) != 1 || ids != 1 {
		t.Errorf("%d jobs, %d ids", len(rows.jobs), ids)
	}
}

// lockers is Blobs for many goroutines, each with a shelf of its own.
type lockers struct{ aviary.Blobs }

func (lockers) FreeBytes(context.Context) (int64, error) { return -1, nil }
func (lockers) Stage(context.Context) (aviary.Staged, error) {
	return &book{shelf: &shelf{blobs: map[string][]byte{}}}, nil
}
func (lockers) Delete(context.Context, string) error { return nil }

func TestNamesAreChecked(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		s    aviary.Submission
		want aviary.Code
	}{
		{"all visible ASCII", keyed(`!"#$%&'()*+,-./09:;<=>?@AZ[\]^_az{|}~`), ""},
		{"the longest key", keyed(strings.Repeat("k", 255)), ""},
		{"too long", keyed(strings.Repeat("k", 256)), aviary.CodeMalformedRequest},
		{"a space", keyed("a b"), aviary.CodeMalformedRequest},
		{"a tab", keyed("a\tb"), aviary.CodeMalformedRequest},
		{"beyond ASCII", keyed("schlüssel"), aviary.CodeMalformedRequest},
		{"a tenant", aviary.Submission{Tenant: "Büro 3"}, ""},
		{"the longest tenant", aviary.Submission{Tenant: strings.Repeat("t", 128)}, ""},
		{"too long a tenant", aviary.Submission{Tenant: strings.Repeat("t", 129)}, aviary.CodeMalformedRequest},
		{"a tenant with a line feed", aviary.Submission{Tenant: "a\nb"}, aviary.CodeMalformedRequest},
		{"a tenant that is no UTF-8", aviary.Submission{Tenant: "a\xff"}, aviary.CodeMalformedRequest},
	}
	for _, tt := range tests {
		d := newDesk(t)
		job, _, err := d.submit("audio", tt.s)
		if aviary.CodeOf(err) != tt.want || err == nil && tt.s.Tenant != "" && job.Tenant != tt.s.Tenant {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func waiting(jobs int, audio time.Duration) aviary.Backlog {
	return aviary.Backlog{Classes: map[aviary.Priority]aviary.ClassBacklog{
		aviary.PriorityBulk: {Amount: aviary.Amount{Jobs: jobs, Audio: audio}}, aviary.PriorityInteractive: {}}}
}

// A full queue costs nobody an upload.
func TestAFullQueueIsToldBeforeTheUpload(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		limits  aviary.QueueLimits
		backlog aviary.Backlog
		want    aviary.Code
	}{
		{"no limits", aviary.QueueLimits{}, waiting(1e6, 1e6*time.Hour), ""},
		{"room for one", aviary.QueueLimits{Jobs: 3}, waiting(2, time.Hour), ""},
		{"as many jobs as may wait", aviary.QueueLimits{Jobs: 3}, waiting(3, time.Hour), aviary.CodeQueueFull},
		{"a second is left", aviary.QueueLimits{Audio: time.Hour}, waiting(3, time.Hour-time.Second), ""},
		{"as much audio as may wait", aviary.QueueLimits{Audio: time.Hour}, waiting(3, time.Hour), aviary.CodeQueueFull},
		{"a caller's room for one", aviary.QueueLimits{TenantJobs: 3, TenantAudio: 2 * time.Hour}, waiting(9, 9*time.Hour), ""},
		{"as many jobs as a caller may have", aviary.QueueLimits{TenantJobs: 2}, waiting(9, 9*time.Hour), aviary.CodeQuotaExceeded},
		{"as much audio as a caller may have", aviary.QueueLimits{TenantAudio: time.Hour}, waiting(9, 9*time.Hour), aviary.CodeQuotaExceeded},
	}
	for _, tt := range tests {
		d := newDesk(t)
		d.Limits.Queue, d.rows.backlog = tt.limits, tt.backlog
		d.rows.open = map[string]aviary.Amount{"a": {Jobs: 2, Audio: time.Hour}, "b": {Jobs: 100, Audio: 100 * time.Hour}}
		body := &counted{Reader: strings.NewReader("audio")}
		_, _, err := d.Submit(t.Context(), body, aviary.Submission{Tenant: "a"})
		if aviary.CodeOf(err) != tt.want || (tt.want != "") != (body.read == 0) {
			t.Errorf("%s: %v, %d bytes were read", tt.name, err, body.read)
		}
	}
	d := newDesk(t)
	d.Limits.Queue.Jobs, d.rows.away = 1, errors.New("connection refused")
	if _, _, err := d.submit("audio", aviary.Submission{}); aviary.CodeOf(err) != aviary.CodeInternal {
		t.Errorf("the store is away: %v", err)
	}
	if _, _, err := d.submit("audio", keyed("k")); aviary.CodeOf(err) != aviary.CodeInternal {
		t.Errorf("the store is away: %v", err)
	}
	d.stands(0)
}

type counted struct {
	io.Reader
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

func TestWhenToComeBack(t *testing.T) {
	t.Parallel()
	known := func(rate float64) func() (float64, bool) { return func() (float64, bool) { return rate, true } }
	over := func(code aviary.Code, limit, actual float64, unit string) *aviary.Error {
		return &aviary.Error{Code: code, Limit: limit, Actual: actual, Unit: unit}
	}
	seconds := over(aviary.CodeQueueFull, 1000, 1600, "seconds")
	tests := []struct {
		name    string
		err     error
		rate    func() (float64, bool)
		backlog aviary.Backlog
		want    time.Duration
	}{
		{"audio over the limit", seconds, known(60), aviary.Backlog{}, 10 * time.Second},
		{"the same of a tenant", over(aviary.CodeQuotaExceeded, 1000, 1600, "seconds"), known(60), aviary.Backlog{}, 10 * time.Second},
		{"jobs over the limit, of 30 s", over(aviary.CodeQuotaExceeded, 10, 14, "jobs"), known(6), waiting(8, 4*time.Minute), 20 * time.Second},
		{"at least a second", over(aviary.CodeQueueFull, 1000, 1000.5, "seconds"), known(60), aviary.Backlog{}, time.Second},
		{"at most an hour", seconds, known(0.001), aviary.Backlog{}, time.Hour},
		{"never longer than that", seconds, known(1e-300), aviary.Backlog{}, time.Hour},
		{"an unknown speed", seconds, func() (float64, bool) { return 0, false }, aviary.Backlog{}, 30 * time.Second},
		{"no measure", seconds, nil, aviary.Backlog{}, 30 * time.Second},
		{"jobs of unknown length", over(aviary.CodeQueueFull, 1, 2, "jobs"), known(6), aviary.Backlog{}, 30 * time.Second},
		{"a refusal that knows", &aviary.Error{Code: aviary.CodeQueueFull, Wait: 7 * time.Second}, known(6), aviary.Backlog{}, 7 * time.Second},
		{"another refusal", over(aviary.CodeAudioTooLong, 1, 2, "seconds"), known(6), aviary.Backlog{}, 0},
	}
	for _, tt := range tests {
		d := newDesk(t)
		d.rows.err, d.rows.backlog, d.Rate = tt.err, tt.backlog, tt.rate
		_, _, err := d.submit("audio", aviary.Submission{})
		var e *aviary.Error
		if !errors.As(err, &e) || e.Wait != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		d.stands(0)
	}
	if seconds.Wait != 0 {
		t.Error("an error of somebody else was changed")
	}
}
