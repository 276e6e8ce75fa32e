package api

import (
	"net/http"

	"github.com/aviary-asr/aviary"
)

// Capacity is what the server takes.
type Capacity struct {
	Object  string          `json:"object"` // "capacity"
	Limits  Limits          `json:"limits"`
	Formats []aviary.Format `json:"formats"`

	Throughput
}

// Limits bound uploads and the queue. What is absent has no limit.
type Limits struct {
	AudioSeconds       float64 `json:"audio_seconds,omitempty"`        // of a recording: exactly this long passes
	UploadBytes        int64   `json:"upload_bytes,omitempty"`         // of an upload
	QueueJobs          int     `json:"queue_jobs,omitempty"`           // that may wait
	QueueAudioSeconds  float64 `json:"queue_audio_seconds,omitempty"`  // that may wait
	TenantJobs         int     `json:"tenant_jobs,omitempty"`          // that one caller may have open, waiting or running
	TenantAudioSeconds float64 `json:"tenant_audio_seconds,omitempty"` // that one caller may have open
	Decodes            int     `json:"decodes,omitempty"`              // uploads that are decoded at the same time; others wait their turn
}

// capacity says what may be sent.
func (s *Server) capacity(x *exchange, r *http.Request) error {
	if _, err := params(r); err != nil {
		return err
	}
	b, err := s.Store.Backlog(r.Context())
	if err != nil {
		return err
	}
	l := s.Intake.Limits
	c := Capacity{Object: "capacity", Formats: s.Formats, Throughput: s.throughput(b), Limits: Limits{
		AudioSeconds: seconds(l.Duration), UploadBytes: l.UploadBytes,
		QueueJobs: l.Queue.Jobs, QueueAudioSeconds: seconds(l.Queue.Audio), Decodes: cap(s.Intake.Decoding),
		TenantJobs: l.Queue.TenantJobs, TenantAudioSeconds: seconds(l.Queue.TenantAudio),
	}}
	if c.Formats == nil {
		c.Formats = []aviary.Format{}
	}
	return x.reply(http.StatusOK, c)
}
