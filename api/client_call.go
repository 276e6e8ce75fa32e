package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aviary-asr/aviary"
)

// ErrUnreachable is what every error is that came from the connection, or from something before the server, and not from the server itself.
var ErrUnreachable = errors.New("the server cannot be reached")

// UnreachableError says which server could not be reached, and why.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the server %s cannot be reached: %v", e.Server, e.Err)
}

// Unwrap makes it ErrUnreachable too.
func (e *UnreachableError) Unwrap() []error { return []error{ErrUnreachable, e.Err} }

// Answer is the cause inside an *aviary.Error that a Client returns: what the server said.
type Answer struct {
	Status  int
	Problem Problem
}

func (e *Answer) Error() string {
	if e.Problem.RequestID == "" {
		return fmt.Sprintf("HTTP %d", e.Status)
	}
	return fmt.Sprintf("HTTP %d, request %s", e.Status, e.Problem.RequestID)
}

// errNotModified is a 304.
var errNotModified = errors.New("not modified")

// call is one request to make, possibly more than once.
type call struct {
	method, path string
	query        url.Values
	header       http.Header
	wait         time.Duration // how long the server was asked to wait
	again        bool          // may be repeated, whatever happened

	upload bool
	rewind bool                      // body may be called again
	keyed  bool                      // the upload carries an idempotency key, and may be repeated whatever happened
	body   func() (io.Reader, error) // of an upload
	length int64                     // of body; -1: not known
}

// answer is a response, read to its end.
type answer struct {
	header http.Header
	body   []byte
}

// mostAnswer bounds what a response may hold: the longest transcripts have a few MB.
const mostAnswer = 256 << 20

// longestRetryAfter is the longest that a server can make a call wait; when it says more, the caller hears of it at once.
const longestRetryAfter = time.Minute

// do makes a call, and repeats it as the call allows.
func (c *Client) do(ctx context.Context, r call) (answer, error) {
	for try := 0; ; try++ {
		a, err := c.once(ctx, r)
		wait, again := c.repeat(r, err, try)
		if !again {
			return a, err
		}
		if pause(ctx, wait) != nil {
			return a, err
		}
	}
}

// repeat says whether a call should be made again, and after how long.
func (c *Client) repeat(r call, err error, try int) (time.Duration, bool) {
	if err == nil || try >= c.Retries {
		return 0, false
	}
	wait := min(c.Backoff<<min(try, 20), 10*time.Second)
	wait += rand.N(wait/2 + 1) // so that clients that were cut off together do not come back together
	var e *aviary.Error
	var said *Answer
	switch {
	case errors.Is(err, ErrUnreachable):
		return wait, r.again || r.keyed
	case !errors.As(err, &e) || !errors.As(err, &said):
		return 0, false
	case said.Status == http.StatusTooManyRequests || said.Status == http.StatusServiceUnavailable:
		return max(wait, e.Wait), (r.again || r.rewind) && e.Wait <= longestRetryAfter
	case e.Code == aviary.CodeIdempotencyInProgress || said.Status == http.StatusInternalServerError:
		// The first try may be under way still, or its end unknown to the server itself.
		return max(wait, e.Wait), r.keyed && e.Wait <= longestRetryAfter
	}
	return 0, false
}

// once makes a call once. On a refusal the answer is returned beside the error.
func (c *Client) once(ctx context.Context, r call) (answer, error) {
	inner := ctx
	if !r.upload {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, r.wait+c.Answer)
		defer cancel()
	}
	req, err := c.request(inner, r)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.HTTP.Do(req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
		_ = resp.Body.Close()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return answer{}, fmt.Errorf("%s %s: %w", r.method, r.path, context.Cause(ctx))
	case err != nil:
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the URL is long, and Server says enough
		}
		return answer{}, &UnreachableError{c.Server, err}
	}
	a := answer{resp.Header, body}
	switch {
	case resp.StatusCode == http.StatusNotModified:
		return a, errNotModified
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return a, c.refusal(resp, body)
	}
	return a, nil
}

func (c *Client) request(ctx context.Context, r call) (*http.Request, error) {
	var body io.Reader
	if r.upload {
		var err error
		if body, err = r.body(); err != nil {
			return nil, err
		}
	}
	u := c.base.JoinPath(r.path)
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if r.header != nil {
		req.Header = r.header.Clone()
	}
	if r.upload {
		req.ContentLength = r.length
	}
	req.Header.Set("User-Agent", c.UserAgent)
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return req, nil
}

// refusal reads an answer that is not a success. One without a problem body is not from our server: a proxy that could not reach it answers
// with 502, 503 or 504.
func (c *Client) refusal(resp *http.Response, body []byte) error {
	said := &Answer{Status: resp.StatusCode}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), problemMediaType) && json.Unmarshal(body, &said.Problem) == nil && said.Problem.Code != "" {
		e := said.Problem.err(said)
		if e.Wait == 0 {
			e.Wait = parseRetryAfter(resp.Header.Get("Retry-After"))
		}
		return e
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &UnreachableError{c.Server, said}
	}
	return aviary.WrapError(aviary.CodeInternal, "", said, "The server %s answered %s, and not as an Aviary does.", c.Server, resp.Status)
}

// parseRetryAfter reads the form in seconds, and the date.
func parseRetryAfter(text string) time.Duration {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 && n < 1<<31 {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(time.Until(t), 0)
	}
	return 0
}

// pause waits, or returns why it did not.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// framing is what stands before and after the file in a multipart body.
func framing(o aviary.Options) (head, tail []byte, contentType string, err error) {
	options, err := encode(o)
	if err != nil {
		return nil, nil, "", err
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="options"`}, "Content-Type": {"application/json"},
	})
	if err == nil {
		_, err = part.Write(options)
	}
	if err == nil {
		// The name goes with the options, where it needs no quoting.
		_, err = w.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {`form-data; name="file"; filename="audio"`}, "Content-Type": {"application/octet-stream"},
		})
	}
	begin := b.Len()
	if err == nil {
		err = w.Close()
	}
	return b.Bytes()[:begin], b.Bytes()[begin:], w.FormDataContentType(), err
}

// source is the caller's file during one try. The transport may go on reading it for a moment after the server has answered.
type source struct {
	from    io.Reader
	size    int64 // announced; 0 or less: not known
	read    int64
	reading sync.Mutex
	stopped atomic.Bool
	failure atomic.Pointer[error]
}

func (s *source) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.stopped.Load() {
		return 0, errors.New("the upload has ended")
	}
	n, err := s.from.Read(p)
	s.read += int64(n)
	ended := err == io.EOF //nolint:errorlint // the io.Reader contract
	if s.size > 0 && (s.read > s.size || ended && s.read < s.size) {
		err = fmt.Errorf("the file does not have the %d bytes that it had: it changed while it was sent", s.size)
		ended = false
	}
	if err != nil && !ended {
		s.failure.Store(&err)
	}
	return n, err
}

// stop allows no further read, but waits for none either: it may be one of a terminal.
func (s *source) stop() { s.stopped.Store(true) }

// rest waits for the read in progress, after stop.
func (s *source) rest() {
	s.reading.Lock()
	defer s.reading.Unlock()
}

// failed is how reading failed, if it did.
func (s *source) failed() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}
