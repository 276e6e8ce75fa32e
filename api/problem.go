package api

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
)

// problemType is the root of the problem types' names. RFC 2606 keeps .invalid from ever resolving: the names identify, and lead nowhere.
const problemType = "https://aviary.invalid/problems/"

const problemMediaType = "application/problem+json"

// Problem is an error as clients see it, after RFC 9457. In a job's error, Status and RequestID are absent.
type Problem struct {
	Type              string       `json:"type"`
	Title             string       `json:"title"`
	Status            int          `json:"status,omitempty"`
	Detail            string       `json:"detail,omitempty"`
	Code              aviary.Code  `json:"code"`
	RequestID         string       `json:"request_id,omitempty"`
	Retryable         bool         `json:"retryable"`
	Limit             *float64     `json:"limit,omitempty"`
	Actual            *float64     `json:"actual,omitempty"`
	Unit              string       `json:"unit,omitempty"` // of Limit and Actual
	Hint              string       `json:"hint,omitempty"`
	RetryAfterSeconds int          `json:"retry_after_seconds,omitempty"`
	Errors            []FieldError `json:"errors,omitempty"`
	Job               *Tombstone   `json:"job,omitempty"` // where the error is about a job's state
}

// FieldError is what is wrong with one option. Pointer is a JSON pointer (RFC 6901) into the options, also for those in the query.
type FieldError struct {
	Pointer string      `json:"pointer"`
	Code    aviary.Code `json:"code"`
	Detail  string      `json:"detail"`
}

// Tombstone is what remains to be said of a job that cannot serve a request.
type Tombstone struct {
	ID         string       `json:"id"`
	Object     string       `json:"object"` // "job"
	Status     aviary.State `json:"status"`
	CreatedAt  time.Time    `json:"created_at"`
	FinishedAt time.Time    `json:"finished_at,omitzero"`
	Error      *Problem     `json:"error,omitempty"`
}

func newTombstone(j aviary.Job) *Tombstone {
	t := &Tombstone{ID: j.ID, Object: "job", Status: j.State, CreatedAt: utc(j.CreatedAt), FinishedAt: utc(j.FinishedAt)}
	if j.Problem != nil && j.State.Final() {
		t.Error = storedProblem(j.Problem)
	}
	return t
}

// jobError is a refusal because of a job's state.
type jobError struct {
	err *aviary.Error
	job aviary.Job
}

func (e *jobError) Error() string { return e.err.Error() }
func (e *jobError) Unwrap() error { return e.err }

// fieldsError is a refusal of options.
type fieldsError struct {
	err    *aviary.Error
	fields []FieldError
}

func (e *fieldsError) Error() string { return e.err.Error() }
func (e *fieldsError) Unwrap() error { return e.err }

// newProblem is what the client may see of err.
func newProblem(err error) Problem {
	p := *storedProblem(aviary.ProblemOf(err))
	p.Status = status(p.Code)
	if p.Code == aviary.CodeInternal && p.Detail == "" {
		p.Detail = "The server failed on this request. Its log tells more under the request id."
	}
	wait := retryAfter[p.Code]
	var e *aviary.Error
	if errors.As(err, &e) && e.Wait > 0 {
		wait = e.Wait
	}
	p.RetryAfterSeconds = wholeSeconds(wait)
	var fields *fieldsError
	if errors.As(err, &fields) {
		p.Errors = fields.fields
	}
	var job *jobError
	if errors.As(err, &job) {
		p.Job = newTombstone(job.job)
	}
	return p
}

// storedProblem renders a problem as it stands in a job. Limit and Actual go together with their unit.
func storedProblem(p *aviary.Problem) *Problem {
	out := &Problem{Type: problemType + string(p.Code), Title: p.Title, Detail: p.Detail, Code: p.Code, Retryable: p.Retryable, Hint: p.Hint}
	if p.Unit != "" && finite(p.Limit) && finite(p.Actual) {
		limit, actual := round(p.Limit, 3), round(p.Actual, 3)
		out.Limit, out.Actual, out.Unit = &limit, &actual, p.Unit
	}
	return out
}

// err turns a decoded problem back into the error that it was made of. cause carries what only the log needs.
func (p Problem) err(cause error) *aviary.Error {
	e := &aviary.Error{Code: p.Code, Detail: p.Detail, Hint: p.Hint, Unit: p.Unit, Wait: time.Duration(p.RetryAfterSeconds) * time.Second, Err: cause}
	if e.Detail == "" {
		e.Detail = p.Title
	}
	if p.Limit != nil {
		e.Limit = *p.Limit
	}
	if p.Actual != nil {
		e.Actual = *p.Actual
	}
	return e
}

// wholeSeconds is d for a Retry-After header, rounded up.
func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// fail answers with a problem. Where the answer has begun already, there is nothing left to do but to cut the connection.
func (s *Server) fail(x *exchange, r *http.Request, err error) {
	if x.status != 0 {
		x.log.Warn("a response could not be completed", "err", err)
		panic(http.ErrAbortHandler)
	}
	if r.Context().Err() != nil && aviary.CodeOf(err) == aviary.CodeInternal {
		err = aviary.WrapError(aviary.CodeCanceled, "api", err, "The client went away.")
	}
	p := newProblem(err)
	p.RequestID = x.id
	x.code = p.Code
	switch p.Code {
	case aviary.CodeInternal:
		x.log.Error("request failed", "err", err)
	case aviary.CodeStoreUnavailable: // an operator has to see it, and what it says of the cause
		x.log.Warn("request refused", "code", p.Code, "err", err)
	default:
		x.log.Debug("request refused", "code", p.Code, "err", err)
	}
	body, err := encode(p)
	if err != nil { // not possible: every number in p was checked
		panic(err)
	}
	h := x.Header()
	for _, name := range []string{"Location", "ETag", "Content-Disposition", "Link"} {
		h.Del(name)
	}
	h.Set("Content-Type", problemMediaType)
	h.Set("Cache-Control", "no-store")
	if p.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfterSeconds))
	}
	x.send(p.Status, body)
}

// joinWords lists words for people: "a, b or c".
func joinWords(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
