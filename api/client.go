package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
)

// ClientConfig says which server a Client talks to, and how.
type ClientConfig struct {
	Server    string        // http://127.0.0.1:8080
	Token     string        // sent as a bearer token if not empty
	HTTP      *http.Client  // nil: one with sane timeouts
	UserAgent string        // default "aviary-client"
	Retries   int           // further tries of a call that may be repeated; default 4, negative none
	Backoff   time.Duration // before the first of them, doubled each time up to 10 s; default 200 ms
	Answer    time.Duration // longest wait for an answer, beside uploads and the waiting asked for; default 30 s
}

// Client talks to a Server. Refusals come back as *aviary.Error with the server's code, a server that cannot be reached as an error that is
// ErrUnreachable. Calls that may be repeated are, after failures of the connection and after 429 and 503, for as long as Retry-After says.
type Client struct {
	ClientConfig
	base *url.URL
}

// NewClient checks the configuration. It connects to nothing.
func NewClient(c ClientConfig) (*Client, error) {
	base, err := url.Parse(c.Server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("server %q is not an http:// or https:// URL", c.Server)
	}
	if c.HTTP == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64
		c.HTTP = &http.Client{Transport: t}
	}
	if c.UserAgent == "" {
		c.UserAgent = "aviary-client"
	}
	if c.Retries == 0 {
		c.Retries = 4
	}
	if c.Backoff <= 0 {
		c.Backoff = 200 * time.Millisecond
	}
	if c.Answer <= 0 {
		c.Answer = 30 * time.Second
	}
	base.Path = strings.TrimRight(base.Path, "/")
	return &Client{ClientConfig: c, base: base}, nil
}

// Job asks for a job's state.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	return c.job(ctx, call{method: http.MethodGet, path: jobPath(url.PathEscape(id)), again: true})
}

// After waits until a job differs from what the caller has seen of it, at most for wait (60 s), and returns it as it then is.
func (c *Client) After(ctx context.Context, seen Job, wait time.Duration) (Job, error) {
	wait = min(max(wait, 0), longestWait)
	r := call{method: http.MethodGet, path: jobPath(url.PathEscape(seen.ID)), again: true, wait: wait,
		query: url.Values{"wait": {strconv.FormatFloat(wait.Seconds(), 'f', -1, 64)}}}
	if seen.ETag != "" {
		r.header = http.Header{"If-None-Match": {seen.ETag}}
	}
	job, err := c.job(ctx, r)
	if errors.Is(err, errNotModified) {
		return seen, nil
	}
	return job, err
}

// Wait waits until a job is final. It calls seen, if not nil, with the job as it is found and each time it has changed.
func (c *Client) Wait(ctx context.Context, id string, seen func(Job)) (Job, error) {
	const poll, least = 30 * time.Second, time.Second
	job, err := c.Job(ctx, id)
	for err == nil {
		if seen != nil {
			seen(job)
		}
		if job.Status.Final() {
			return job, nil
		}
		for known := job; err == nil && job.ETag == known.ETag && !job.Status.Final(); {
			asked := time.Now()
			if job, err = c.After(ctx, known, poll); err == nil && job.ETag == known.ETag && time.Since(asked) < least {
				err = pause(ctx, least) // a server that drains does not hold requests
			}
		}
	}
	return Job{}, err
}

// ListOptions selects jobs; the zero value is all, newest first.
type ListOptions struct {
	Statuses     []aviary.State
	Labels       map[string]string
	CreatedAfter time.Time
	Ascending    bool
	Limit        int    // of a page; default 50, at most 200
	Cursor       string // JobList.NextCursor of the page before
}

func (o ListOptions) query() url.Values {
	q := url.Values{}
	if len(o.Statuses) > 0 {
		words := make([]string, len(o.Statuses))
		for i, s := range o.Statuses {
			words[i] = string(s)
		}
		q.Set("status", strings.Join(words, ","))
	}
	for k, v := range o.Labels {
		q.Set("label."+k, v)
	}
	if !o.CreatedAfter.IsZero() {
		q.Set("created_after", o.CreatedAfter.UTC().Format(time.RFC3339Nano))
	}
	if o.Ascending {
		q.Set("sort", "created_at")
	}
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Cursor != "" {
		q.Set("cursor", o.Cursor)
	}
	return q
}

// List asks for one page of jobs.
func (c *Client) List(ctx context.Context, o ListOptions) (JobList, error) {
	var list JobList
	err := c.getJSON(ctx, "/v1/jobs", o.query(), &list)
	return list, err
}

// Jobs goes through all pages. It ends after an error.
func (c *Client) Jobs(ctx context.Context, o ListOptions) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for {
			page, err := c.List(ctx, o)
			if err != nil {
				yield(Job{}, err)
				return
			}
			for _, job := range page.Data {
				if !yield(job, nil) {
					return
				}
			}
			if o.Cursor = page.NextCursor; o.Cursor == "" {
				return
			}
		}
	}
}

// Cancel stops a job. The job returned is still running when it stops soon.
func (c *Client) Cancel(ctx context.Context, id string) (Job, error) {
	return c.job(ctx, call{method: http.MethodPost, path: jobPath(url.PathEscape(id)) + "/cancel", again: true})
}

// Retry queues a failed or canceled job once more.
func (c *Client) Retry(ctx context.Context, id string) (Job, error) {
	return c.job(ctx, call{method: http.MethodPost, path: jobPath(url.PathEscape(id)) + "/retry"})
}

// Delete purges a job's audio and transcript; force also stops it.
func (c *Client) Delete(ctx context.Context, id string, force bool) error {
	r := call{method: http.MethodDelete, path: jobPath(url.PathEscape(id)), again: true}
	if force {
		r.query = url.Values{"force": {"true"}}
	}
	_, err := c.do(ctx, r)
	return err
}

// Attempts lists the tries at a job.
func (c *Client) Attempts(ctx context.Context, id string) (AttemptList, error) {
	var list AttemptList
	err := c.getJSON(ctx, jobPath(url.PathEscape(id))+"/attempts", nil, &list)
	return list, err
}

// Transcript asks for the canonical transcript.
func (c *Client) Transcript(ctx context.Context, id string) (aviary.Transcript, error) {
	var t aviary.Transcript
	body, err := c.TranscriptAs(ctx, id, "json")
	if err != nil {
		return t, err
	}
	return t, decode(body, &t)
}

// TranscriptAs asks for a transcript in a format: json, text, srt, vtt.
func (c *Client) TranscriptAs(ctx context.Context, id, format string) ([]byte, error) {
	r, err := c.do(ctx, call{method: http.MethodGet, path: jobPath(url.PathEscape(id)) + "/transcript", query: url.Values{"format": {format}}, again: true})
	return r.body, err
}

// Queue asks for the backlog.
func (c *Client) Queue(ctx context.Context) (Queue, error) {
	var q Queue
	err := c.getJSON(ctx, "/v1/queue", nil, &q)
	return q, err
}

// Capacity asks what the server takes.
func (c *Client) Capacity(ctx context.Context) (Capacity, error) {
	var l Capacity
	err := c.getJSON(ctx, "/v1/capacity", nil, &l)
	return l, err
}

// Health asks how the server is. A server that answers that it is not healthy is no error.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	r, err := c.once(ctx, call{method: http.MethodGet, path: "/health"})
	var said *Answer
	if answered := errors.As(err, &said) && json.Valid(r.body); err != nil && !answered {
		return h, err
	}
	return h, decode(r.body, &h)
}

// Version asks what the server is.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var v Version
	err := c.getJSON(ctx, "/version", nil, &v)
	return v, err
}

func (c *Client) getJSON(ctx context.Context, path string, query url.Values, into any) error {
	r, err := c.do(ctx, call{method: http.MethodGet, path: path, query: query, again: true})
	if err != nil {
		return err
	}
	return decode(r.body, into)
}

// job makes a call that is answered with a job.
func (c *Client) job(ctx context.Context, r call) (Job, error) {
	a, err := c.do(ctx, r)
	if err != nil {
		return Job{}, err
	}
	var job Job
	err = decode(a.body, &job)
	job.ETag = a.header.Get("ETag")
	return job, err
}

// decode reads an answer. Members that this version does not know are skipped.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the server's answer is not understood: %w", err)
	}
	return nil
}

// Upload is a file on its way to become a job.
type Upload struct {
	Body    io.Reader
	Size    int64 // in bytes; 0 or less: not known
	Options aviary.Options
	// IdempotencyKey names this request, so that it can be repeated without making a second job: 1 to 255 visible ASCII characters. Empty is none.
	IdempotencyKey string
}

// Submit sends a file, as it is read. When Body is an io.Seeker it is tried again: with an IdempotencyKey after every failure that may pass, also when an
// answer got lost and the job may exist; without one only after an answer that says that nothing was accepted (429, 503).
func (c *Client) Submit(ctx context.Context, u Upload) (Job, error) {
	head, tail, contentType, err := framing(u.Options)
	if err != nil {
		return Job{}, err
	}
	r := call{method: http.MethodPost, path: "/v1/jobs", upload: true, length: -1, header: http.Header{"Content-Type": {contentType}}}
	if u.Size > 0 {
		r.length = int64(len(head)) + u.Size + int64(len(tail))
	}
	if u.Size <= 0 || u.Size > 1<<20 {
		r.header.Set("Expect", "100-continue") // a refusal then costs no upload
	}
	seeker, begin, rewind := startOf(u.Body)
	r.rewind = rewind
	if u.IdempotencyKey != "" {
		r.header.Set(headerKey, u.IdempotencyKey)
		r.keyed = rewind
	}
	var from *source
	r.body = func() (io.Reader, error) {
		if from != nil {
			from.stop()
			from.rest()
			if _, err := seeker.Seek(begin, io.SeekStart); err != nil {
				return nil, err
			}
		}
		from = &source{from: u.Body, size: u.Size}
		return io.MultiReader(bytes.NewReader(head), from, bytes.NewReader(tail)), nil
	}
	job, err := c.job(ctx, r)
	from.stop()
	if ours := from.failed(); ours != nil && errors.Is(err, ErrUnreachable) {
		return Job{}, ours
	}
	return job, err
}

// startOf finds out whether a body can be sent again from where it stands.
func startOf(body io.Reader) (io.Seeker, int64, bool) {
	seeker, ok := body.(io.Seeker)
	if !ok {
		return nil, 0, false
	}
	begin, err := seeker.Seek(0, io.SeekCurrent)
	return seeker, begin, err == nil // a pipe may look like a file
}
