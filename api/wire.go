package api

import (
	"bytes"
	"encoding/json"
	"math"
	"time"

	"github.com/aviary-asr/aviary"
)

// Job is a job as clients see it. What does not apply is absent.
type Job struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`           // "job"
	Tenant     string            `json:"tenant,omitempty"` // who submitted it, where that has a name
	Status     aviary.State      `json:"status"`
	Phase      aviary.Phase      `json:"phase,omitempty"` // while running
	Name       string            `json:"name"`
	CreatedAt  time.Time         `json:"created_at"`
	StartedAt  time.Time         `json:"started_at,omitzero"` // of the newest attempt
	FinishedAt time.Time         `json:"finished_at,omitzero"`
	Audio      Audio             `json:"audio"`
	Priority   aviary.Priority   `json:"priority"`
	Labels     map[string]string `json:"labels"`
	Progress   Progress          `json:"progress"`
	Queue      *QueuePlace       `json:"queue,omitempty"` // while queued; not in lists
	// Attempt counts the attempts that are the job's own: those that failed, and the one that runs or succeeded. A lost worker or a drain
	// costs none; Lost counts the lost ones.
	Attempt         int               `json:"attempt"`
	MaxAttempts     int               `json:"max_attempts"`
	Lost            int               `json:"lost,omitempty"`
	CancelRequested bool              `json:"cancel_requested,omitempty"` // while it stops
	Attention       *aviary.Attention `json:"attention,omitempty"`        // of the attempt that succeeded
	Error           *Problem          `json:"error,omitempty"`            // why it failed
	Links           Links             `json:"links"`

	// ETag is the version that a client saw; Client fills it from the header.
	ETag string `json:"-"`
}

// Audio is what an upload was found to be.
type Audio struct {
	DurationSeconds float64 `json:"duration_seconds"`
	Bytes           int64   `json:"bytes"`
	Container       string  `json:"container"`
	Codec           string  `json:"codec"`
	SampleRate      int     `json:"sample_rate"` // Hz
	Channels        int     `json:"channels"`
	SHA256          string  `json:"sha256"` // of the upload, hex
	// Channel is the one that was asked for, from 1; absent when all are mixed.
	Channel  int      `json:"channel,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // what a user should know about the recording, as sentences
}

// Progress is how far a job has come. Fraction is between 0 and 1.
type Progress struct {
	Fraction          float64 `json:"fraction"`
	AudioSecondsDone  float64 `json:"audio_seconds_done"`
	AudioSecondsTotal float64 `json:"audio_seconds_total"`
}

// QueuePlace is where a queued job stands: 1 is next.
type QueuePlace struct {
	Position          int     `json:"position"`
	AudioSecondsAhead float64 `json:"audio_seconds_ahead"`
}

// Links are paths on the same server.
type Links struct {
	Self       string `json:"self"`
	Transcript string `json:"transcript"`
	Attempts   string `json:"attempts"`
	Cancel     string `json:"cancel"`
	Retry      string `json:"retry"`
}

// JobList is one page of jobs.
type JobList struct {
	Object     string `json:"object"` // "list"
	Data       []Job  `json:"data"`
	HasMore    bool   `json:"has_more"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// Attempt is one try at a job. Numbers are never reused; tries that were lost or given back are listed too.
type Attempt struct {
	Object    string         `json:"object"` // "attempt"
	Number    int            `json:"number"`
	Worker    string         `json:"worker"`
	Device    string         `json:"device"`
	StartedAt time.Time      `json:"started_at"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
	Outcome   aviary.Outcome `json:"outcome,omitempty"` // absent while it runs
	Error     *Problem       `json:"error,omitempty"`
}

// AttemptList is all attempts at a job, oldest first.
type AttemptList struct {
	Object string    `json:"object"` // "list"
	Data   []Attempt `json:"data"`
}

// Version says what answers.
type Version struct {
	Name    string `json:"name"` // "aviary"
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

func jobPath(id string) string { return "/v1/jobs/" + id }

// newJob renders the row. The caller adds Queue.
func newJob(j aviary.Job) Job {
	out := Job{
		ID: j.ID, Object: "job", Status: j.State, Name: j.Options.Name,
		CreatedAt: utc(j.CreatedAt), StartedAt: utc(j.StartedAt), FinishedAt: utc(j.FinishedAt),
		Audio: Audio{
			DurationSeconds: seconds(j.Audio.Duration), Bytes: j.Audio.Bytes, Container: j.Audio.Container, Codec: j.Audio.Codec,
			SampleRate: j.Audio.SampleRate, Channels: j.Audio.Channels, SHA256: j.Audio.SHA256,
			Channel: j.Options.Channel, Warnings: j.Audio.Warnings,
		},
		Priority: j.Options.Priority, Labels: j.Options.Labels, Progress: newProgress(j),
		Attempt: j.Fails, MaxAttempts: j.MaxAttempts, Lost: j.Lost,
		CancelRequested: j.CancelRequested && !j.State.Final(), Attention: j.Attention,
	}
	if j.Tenant != aviary.DefaultTenant {
		out.Tenant = j.Tenant
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if j.State == aviary.StateRunning {
		out.Phase = j.Phase
	}
	if j.State == aviary.StateRunning || j.State == aviary.StateSucceeded {
		out.Attempt++
	}
	if j.Problem != nil && j.State.Final() && j.State != aviary.StateSucceeded {
		out.Error = storedProblem(j.Problem)
	}
	self := jobPath(j.ID)
	out.Links = Links{Self: self, Transcript: self + "/transcript", Attempts: self + "/attempts", Cancel: self + "/cancel", Retry: self + "/retry"}
	return out
}

func newProgress(j aviary.Job) Progress {
	done, total := min(j.Progress, j.Audio.Duration), j.Audio.Duration
	if j.State == aviary.StateSucceeded {
		done = total
	}
	p := Progress{AudioSecondsDone: seconds(done), AudioSecondsTotal: seconds(total)}
	if total > 0 {
		p.Fraction = round(float64(done)/float64(total), 4)
	}
	return p
}

func newAttempt(a aviary.Attempt) Attempt {
	out := Attempt{Object: "attempt", Number: a.Attempt, Worker: a.Worker, Device: a.Device,
		StartedAt: utc(a.StartedAt), EndedAt: utc(a.EndedAt), Outcome: a.Outcome}
	if a.Problem != nil {
		out.Error = storedProblem(a.Problem)
	}
	return out
}

// utc is t as it is shown: UTC, milliseconds. A zero time stays zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// seconds is d as it is shown: seconds with at most three decimals.
func seconds(d time.Duration) float64 { return round(d.Seconds(), 3) }

// round keeps a number's first decimals.
func round(x float64, decimals int) float64 {
	unit := math.Pow10(decimals)
	return math.Round(x*unit) / unit
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// encode renders v as one line of JSON. It fails on a number that is not finite, and so does the request: JSON has no such number, and
// another in its place would be a lie.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
