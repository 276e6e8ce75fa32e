package aviary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Submission is what a caller asks for with an upload.
type Submission struct {
	Options Options
	// Tenant is who asks; empty is DefaultTenant. Whoever fills it in has made sure that it is true.
	Tenant string
	// Key is the caller's name for this request; empty is none. A second request of the tenant with the same key, the same bytes and the same options is
	// answered with the job of the first one.
	Key string
}

// Bounds of what names a request and who makes it.
const (
	longestKey    = 255
	longestTenant = 128
)

// normalize fills defaults and refuses what is out of range.
func (s Submission) normalize() (Submission, error) {
	const op = "submission"
	if s.Tenant == "" {
		s.Tenant = DefaultTenant
	}
	if len(s.Tenant) > longestTenant || !utf8.ValidString(s.Tenant) || strings.ContainsFunc(s.Tenant, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s, Errorf(CodeMalformedRequest, op, "The caller's name is not 1 to %d bytes of printable text.", longestTenant)
	}
	if len(s.Key) > longestKey || strings.ContainsFunc(s.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return s, Errorf(CodeMalformedRequest, op, "The Idempotency-Key is not 1 to %d visible ASCII characters.", longestKey)
	}
	var err error
	s.Options, err = s.Options.normalize()
	return s, err
}

// requestHash is what makes two requests the same: SHA-256, in hex, over the upload's own SHA-256 in hex, a line feed, and the normalized options as JSON.
// That JSON is canonical, since encoding/json writes the fields of a struct in their order, the keys of a map sorted, and leaves out
// what is not set: a field that a later version adds to Options changes no hash of a request that does not use it.
func requestHash(upload string, o Options) (string, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(upload+"\n"), options...))
	return hex.EncodeToString(sum[:]), nil
}

// inFlight holds the requests with a key that this process is working on. Another process may work on the same one: then the store decides. The zero value is
// empty.
type inFlight struct {
	mu   sync.Mutex
	open map[[2]string]struct{}
}

// inFlightWait is how soon a caller may ask again whose request is being worked on.
const inFlightWait = time.Second

// enter claims the submission's key until leave is called. A submission without a key claims nothing.
func (f *inFlight) enter(s Submission) (leave func(), err error) {
	const op = "intake.key"
	if s.Key == "" {
		return func() {}, nil
	}
	id := [2]string{s.Tenant, s.Key}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, taken := f.open[id]; taken {
		e := Errorf(CodeIdempotencyInProgress, op, "A request with this Idempotency-Key is being worked on.")
		e.Wait = inFlightWait
		return nil, e
	}
	if f.open == nil {
		f.open = map[[2]string]struct{}{}
	}
	f.open[id] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, id)
	}, nil
}

// requested finds the job that an earlier request with this key has made.
func (in *Intake) requested(ctx context.Context, s Submission) (job Job, found bool, err error) {
	if s.Key == "" {
		return Job{}, false, nil
	}
	err = in.ask(ctx, func(ctx context.Context) (err error) {
		job, err = in.Store.Requested(ctx, s.Tenant, s.Key)
		return err
	})
	if CodeOf(err) == CodeNotFound {
		return Job{}, false, nil
	}
	return job, err == nil, err
}

// repeat answers a request whose key has a job already: the bytes decide whether it is the same request.
func (in *Intake) repeat(ctx context.Context, body io.Reader, s Submission, earlier Job, err error) (Job, bool, error) {
	if err != nil {
		return Job{}, false, err
	}
	sum, err := in.hash(ctx, body, io.Discard, func() error { return nil })
	return replay(s, sum, earlier, err)
}

// replay is the job that the key has, if the request is the same.
func replay(s Submission, sum string, earlier Job, err error) (Job, bool, error) {
	const op = "intake.replay"
	if err != nil {
		return Job{}, false, err
	}
	if earlier.ID == "" { // the store refused the key, and has forgotten its job since
		e := Errorf(CodeIdempotencyInProgress, op, "The job of this Idempotency-Key has just been forgotten.")
		e.Wait = inFlightWait
		return Job{}, false, e
	}
	hash, err := requestHash(sum, s.Options)
	if err != nil {
		return Job{}, false, err
	}
	if hash != earlier.RequestHash {
		e := Errorf(CodeIdempotencyKeyReused, op, "Another file, or other options, have been submitted with this Idempotency-Key.")
		e.Hint = "A key belongs to one request. Take a new one for a new request."
		return Job{}, false, e
	}
	return earlier, true, nil
}

// checkQueue refuses what is certain to be refused when the job is created, before the body is read: a full queue, or a tenant's own limit, should cost
// nobody an upload. Any audio is longer than none.
func (in *Intake) checkQueue(ctx context.Context, tenant string) error {
	const op = "intake.queue"
	limits := in.Limits.Queue
	if limits.Jobs > 0 || limits.Audio > 0 {
		b, err := in.Store.Backlog(ctx)
		if err != nil {
			return err
		}
		full := Errorf(CodeQueueFull, op, "The queue takes no more for now.")
		if full.fills(b.Queued(), limits.Jobs, limits.Audio) {
			return full
		}
	}
	if limits.TenantJobs > 0 || limits.TenantAudio > 0 {
		open, err := in.Store.TenantOpen(ctx, tenant)
		if err != nil {
			return err
		}
		full := Errorf(CodeQuotaExceeded, op, "You have as much waiting and running as you may.")
		if full.fills(open, limits.TenantJobs, limits.TenantAudio) {
			return full
		}
	}
	return nil
}

// fills says whether there is no room for a job more, and if so puts the numbers into the error.
func (e *Error) fills(there Amount, jobs int, audio time.Duration) bool {
	switch {
	case jobs > 0 && there.Jobs >= jobs:
		e.Limit, e.Actual, e.Unit = float64(jobs), float64(there.Jobs+1), unitJobs
	case audio > 0 && there.Audio >= audio:
		e.Limit, e.Actual, e.Unit = audio.Seconds(), there.Audio.Seconds(), unitSeconds
	default:
		return false
	}
	return true
}

// The units of Error.Limit that say what a full queue is full of.
const (
	unitJobs    = "jobs"
	unitSeconds = "seconds"
)

// Bounds of the time after which a caller should come back to a full queue, and the time where the throughput is not known.
const (
	shortestWait = time.Second
	longestWait  = time.Hour
	unknownWait  = 30 * time.Second
)

// withWait says when a refusal for want of room is likely to be over: after the time that the system takes for what is over the limit, at the speed that was
// measured, between a second and an hour; 30 s where no speed is known. Jobs over a limit of jobs are taken to be as long as those
// that are open. It is an estimate, for a tenant over its own limit all the more: it shares the devices with others.
func (in *Intake) withWait(ctx context.Context, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeQueueFull && e.Code != CodeQuotaExceeded || e.Wait > 0 {
		return err
	}
	timed := *e
	if err != error(e) { //nolint:errorlint // it is about this very error: what stands around it must reach the log
		timed.Err = err
	}
	timed.Wait = unknownWait
	if over, ok := in.overLimit(ctx, e); ok {
		if rate, known := in.rate(); known {
			seconds := min(over.Seconds()/rate, longestWait.Seconds())
			timed.Wait = max(time.Duration(seconds*float64(time.Second)), shortestWait)
		}
	}
	return &timed
}

func (in *Intake) rate() (float64, bool) {
	if in.Rate == nil {
		return 0, false
	}
	rate, ok := in.Rate()
	return rate, ok && rate > 0
}

// overLimit is the audio that has to be done before a refused job fits.
func (in *Intake) overLimit(ctx context.Context, e *Error) (time.Duration, bool) {
	over := e.Actual - e.Limit
	if e.Unit == unitSeconds {
		return Seconds(over)
	}
	b, err := in.Store.Backlog(ctx)
	if err != nil || e.Unit != unitJobs {
		return 0, false
	}
	open := b.Queued()
	open.Jobs += b.Running.Jobs
	open.Audio += b.Running.Audio
	if open.Jobs == 0 {
		return 0, false
	}
	return Seconds(over * open.Audio.Seconds() / float64(open.Jobs))
}
