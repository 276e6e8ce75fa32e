package aviary

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// State is where a job is in its life.
type State string

// The states. A job leaves a final state only by retry, or to expired by delete.
const (
	StateQueued    State = "queued"
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateFailed    State = "failed"
	StateCanceled  State = "canceled"
	StateExpired   State = "expired"
)

// States lists all states in the order of a job's life.
func States() []State {
	return []State{StateQueued, StateRunning, StateSucceeded, StateFailed, StateCanceled, StateExpired}
}

// Final says whether nothing more happens to a job in this state by itself.
func (s State) Final() bool { return s != StateQueued && s != StateRunning }

// ParseState accepts the names of the states.
func ParseState(s string) (State, error) {
	for _, state := range States() {
		if s == string(state) {
			return state, nil
		}
	}
	return "", fmt.Errorf("state %q is none of %v", s, States())
}

// Phase says what a running job is doing.
type Phase string

// The phases of an attempt, in order.
const (
	PhaseDecoding     Phase = "decoding"
	PhaseTranscribing Phase = "transcribing"
	PhaseFinalizing   Phase = "finalizing"
)

// Priority is the class of a job. Interactive jobs start before bulk ones.
type Priority string

// The priorities.
const (
	PriorityInteractive Priority = "interactive"
	PriorityBulk        Priority = "bulk"
)

// Priorities lists the classes in the order in which they are served.
func Priorities() []Priority { return []Priority{PriorityInteractive, PriorityBulk} }

// ParsePriority accepts interactive and bulk; an empty string is interactive.
func ParsePriority(s string) (Priority, error) {
	switch p := Priority(strings.ToLower(s)); p {
	case "":
		return PriorityInteractive, nil
	case PriorityInteractive, PriorityBulk:
		return p, nil
	}
	return "", fmt.Errorf("priority %q is neither interactive nor bulk", s)
}

// ParseChannel accepts a channel's number, from 1, and "mix", which is 0: the mean of all.
func ParseChannel(s string) (int, error) {
	if strings.EqualFold(s, "mix") {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("channel %q is neither mix nor a number from 1 on", s)
	}
	return int(n), nil
}

// Options is what a caller may ask of a job. The zero value of each field means the server's default.
type Options struct {
	Name      string            `json:"name,omitempty"` // the file's name, for people
	Attention AttentionMode     `json:"attention,omitempty"`
	Channel   int               `json:"channel,omitempty"` // the channel to transcribe, from 1; 0 is the mix of all
	Priority  Priority          `json:"priority,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Job is one upload and what became of it: the row that is the truth.
type Job struct {
	ID        string
	Tenant    string // who submitted it; fairness and quotas are by tenant
	State     State
	Phase     Phase // only while running
	Options   Options
	Audio     Audio
	BlobKey   string        // the upload as it came
	AudioKey  string        // what the device hears: the normalized recording. Jobs of older versions have none, and their device decodes the upload
	AudioGone bool          // both blobs have been deleted, or are about to be
	Version   int64         // grows with every change that a client can see; the ETag
	Progress  time.Duration // audio done of Audio.Duration

	Attempt     int // number of the newest attempt: the fencing token; never reused
	Generation  int // number of the newest hand-over to the queue
	Fails       int // attempts that ended in an error that counts
	Lost        int // attempts whose worker was lost
	MaxAttempts int

	RequestKey, RequestHash string // the Idempotency-Key it was submitted with, if any, and a hash of all that was asked for with it

	Worker, Device  string
	CancelRequested bool
	Attention       *Attention // of the attempt that succeeded
	Problem         *Problem   // why it failed

	CreatedAt, StartedAt, FinishedAt time.Time // zero when not yet
	NotBefore                        time.Time // a queued job waits until then after a failed attempt
	LeaseUntil                       time.Time // a running job's worker is believed alive until then
}

// DefaultTenant is the tenant of jobs whose submitter has no name.
const DefaultTenant = "default"

// Ticket is a hand-over of a job to the queue. The queue carries nothing else; losing, doubling or delaying one is harmless.
type Ticket struct {
	JobID      string
	Generation int
	Priority   Priority
}

// AttemptRef names one attempt at a job: every write about it carries this and is refused with ErrStale when it is no longer current.
type AttemptRef struct {
	JobID   string
	Attempt int
}

// Attempt is one try at a job, as recorded.
type Attempt struct {
	AttemptRef
	Worker, Device     string
	StartedAt, EndedAt time.Time // EndedAt is zero while it runs
	Outcome            Outcome
	Problem            *Problem
}

// Outcome says how an attempt ended.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"   // for good: the job failed
	OutcomeRetried   Outcome = "retried"  // it failed, the job goes back to queued
	OutcomeReleased  Outcome = "released" // given back uncharged: drain
	OutcomeCanceled  Outcome = "canceled"
	OutcomeLost      Outcome = "lost" // its worker stopped renewing the lease
)
