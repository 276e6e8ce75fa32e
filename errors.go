package aviary

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code names a kind of failure. The list is closed and append-only: clients switch on it. One table here says what each means;
// package api maps it to an HTTP status and package cli to an exit code.
type Code string

// The codes, grouped as the contract groups them.
const (
	CodeMalformedRequest Code = "malformed_request"
	CodeAudioBroken      Code = "audio_broken"

	CodeNotFound           Code = "not_found"
	CodeMethodNotAllowed   Code = "method_not_allowed"
	CodeFormatNotAvailable Code = "format_not_available"
	CodeJobExpired         Code = "job_expired"

	CodeUploadStalled Code = "upload_stalled"

	CodeTranscriptNotReady Code = "transcript_not_ready"
	CodeJobActive          Code = "job_active"
	CodeStateConflict      Code = "state_conflict"

	CodeIdempotencyInProgress Code = "idempotency_in_progress"

	CodeAudioTooLong         Code = "audio_too_long"
	CodeDurationUnknown      Code = "duration_unknown"
	CodeUploadTooLarge       Code = "upload_too_large"
	CodeMediaTypeUnsupported Code = "media_type_unsupported"

	CodeOptionUnknown Code = "option_unknown"
	CodeOptionInvalid Code = "option_invalid"
	CodeAudioNoStream Code = "audio_no_stream"

	CodeIdempotencyKeyReused Code = "idempotency_key_reused"

	CodeQuotaExceeded Code = "quota_exceeded"

	CodeQueueFull   Code = "queue_full"
	CodeStorageFull Code = "storage_full"
	// CodeStoreUnavailable says that the store does not answer, or is busy for too long, and that nothing was changed.
	CodeStoreUnavailable Code = "store_unavailable"
	CodeDraining         Code = "draining"
	CodeInternal         Code = "internal_error"

	CodeDeviceOutOfMemory Code = "device_out_of_memory"
	CodeDeviceFailed      Code = "device_failed"
	CodeEngineFailed      Code = "engine_failed"
	CodeAttemptTimeout    Code = "attempt_timeout"
	CodeWorkerLost        Code = "worker_lost"
	CodeAttemptsExhausted Code = "attempts_exhausted"
	CodeCanceled          Code = "canceled"
)

// codeInfo is what a code says apart from any protocol.
type codeInfo struct {
	title     string
	retryable bool // the same request can succeed later
}

var codes = map[Code]codeInfo{
	CodeMalformedRequest:      {"The request could not be read", false},
	CodeAudioBroken:           {"The audio is damaged", false},
	CodeNotFound:              {"There is no such thing here", false},
	CodeMethodNotAllowed:      {"The method is not allowed here", false},
	CodeFormatNotAvailable:    {"The format is not available", false},
	CodeJobExpired:            {"The job has been deleted", false},
	CodeUploadStalled:         {"The upload stalled", true},
	CodeTranscriptNotReady:    {"The transcript is not ready", true},
	CodeJobActive:             {"The job is still active", true},
	CodeStateConflict:         {"The job's state does not allow this", false},
	CodeAudioTooLong:          {"The audio is too long", false},
	CodeDurationUnknown:       {"The duration could not be determined", false},
	CodeUploadTooLarge:        {"The upload is too large", false},
	CodeMediaTypeUnsupported:  {"The media type is not supported", false},
	CodeOptionUnknown:         {"An option is unknown", false},
	CodeOptionInvalid:         {"An option is invalid", false},
	CodeAudioNoStream:         {"There is no audio in the file", false},
	CodeIdempotencyInProgress: {"The same request is being worked on", true},
	CodeIdempotencyKeyReused:  {"The idempotency key has been used for another request", false},
	CodeQuotaExceeded:         {"The caller has too much open", true},
	CodeQueueFull:             {"The queue is full", true},
	CodeStorageFull:           {"The storage is full", true},
	CodeStoreUnavailable:      {"The store does not answer", true},
	CodeDraining:              {"The server is shutting down", true},
	CodeInternal:              {"Something went wrong inside", true},
	CodeDeviceOutOfMemory:     {"The device's memory does not suffice", false},
	CodeDeviceFailed:          {"The device failed", true},
	CodeEngineFailed:          {"The engine failed", true},
	CodeAttemptTimeout:        {"The attempt took too long", true},
	CodeWorkerLost:            {"The worker was lost", true},
	CodeAttemptsExhausted:     {"The attempts are used up", true},
	CodeCanceled:              {"The job was canceled", false},
}

// Codes lists every code, for tests that hold other tables to this one.
func Codes() []Code {
	list := make([]Code, 0, len(codes))
	for c := range codes {
		list = append(list, c)
	}
	return list
}

// Title is a short sentence for people, the same for every error of the code.
func (c Code) Title() string { return codes[c].title }

// Retryable says whether the same request can succeed later.
func (c Code) Retryable() bool { return codes[c].retryable }

// Error is the one error type that crosses package borders with a meaning for users.
type Error struct {
	Code   Code
	Op     string // the operation that failed, a constant at the head of the function
	Detail string // one sentence for the user; shows nothing of the inside
	Hint   string // what the user can do about it
	Limit  float64
	Actual float64
	Unit   string        // of Limit and Actual; empty when they do not apply
	Wait   time.Duration // when to retry, zero when unknown
	Err    error         // the cause, for the log only
}

func (e *Error) Error() string {
	s := string(e.Code)
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error with a formatted detail.
func Errorf(code Code, op, format string, args ...any) *Error {
	return &Error{Code: code, Op: op, Detail: fmt.Sprintf(format, args...)}
}

// WrapError makes an Error that keeps its cause for the log.
func WrapError(code Code, op string, err error, format string, args ...any) *Error {
	return &Error{Code: code, Op: op, Detail: fmt.Sprintf(format, args...), Err: err}
}

// CodeOf is the code of the outermost Error in err's chain; CodeInternal for any other error; empty for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if errors.Is(err, context.Canceled) {
		return CodeCanceled
	}
	return CodeInternal
}

// OutOfTime is what a call of the store has failed with under a deadline that was set for it, where ctx is that of who set it: unless ctx has ended too, the
// store did not answer in time. A call that may have been committing says so itself, with a code: see Store.
func OutOfTime(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*Error)) {
		return err
	}
	return WrapError(CodeStoreUnavailable, op, err, "The store did not answer in time.")
}

// The fences of the store: a write came from a state or an attempt that is no longer the current one. They never reach a user.
var (
	ErrStale = errors.New("the attempt is no longer the current one")
	// ErrRequestKeyTaken says that the tenant has a job with this request key already.
	ErrRequestKeyTaken = errors.New("the request key is taken")
	ErrNotClaimable    = errors.New("the job cannot be claimed with this ticket")
)

// Problem is a failure as it is stored with a job and shown in it, after RFC 9457.
type Problem struct {
	Code      Code    `json:"code"`
	Title     string  `json:"title"`
	Detail    string  `json:"detail,omitempty"`
	Hint      string  `json:"hint,omitempty"`
	Retryable bool    `json:"retryable"`
	Limit     float64 `json:"limit,omitempty"`
	Actual    float64 `json:"actual,omitempty"`
	Unit      string  `json:"unit,omitempty"`
}

// ProblemOf turns an error into what users may see of it: an error without a code becomes internal_error and shows nothing.
func ProblemOf(err error) *Problem {
	code := CodeOf(err)
	p := &Problem{Code: code, Title: code.Title(), Retryable: code.Retryable()}
	var e *Error
	if errors.As(err, &e) {
		p.Detail, p.Hint, p.Limit, p.Actual, p.Unit = e.Detail, e.Hint, e.Limit, e.Actual, e.Unit
	}
	return p
}
