package api

import (
	"slices"

	"github.com/aviary-asr/aviary"
)

// transcriptJSON is the canonical transcript with what an API object needs.
type transcriptJSON struct {
	Object string `json:"object"` // "transcript"
	JobID  string `json:"job_id"`
	aviary.Transcript
}

// renderJSON writes the canonical form: times with 3 decimals, confidences with 4. A number that is not finite makes it fail.
func renderJSON(jobID string, t aviary.Transcript) ([]byte, error) {
	t.DurationSeconds = round(t.DurationSeconds, 3)
	t.Usage = aviary.Usage{AudioSeconds: round(t.Usage.AudioSeconds, 3), DeviceSeconds: round(t.Usage.DeviceSeconds, 3),
		QueueSeconds: round(t.Usage.QueueSeconds, 3), RTFx: round(t.Usage.RTFx, 3)}
	t.Segments = slices.Clone(t.Segments)
	if t.Segments == nil {
		t.Segments = []aviary.Segment{}
	}
	for i := range t.Segments {
		s := &t.Segments[i]
		s.Start, s.End, s.Confidence = round(s.Start, 3), round(s.End, 3), roundOptional(s.Confidence)
		words := make([]aviary.Word, len(s.Words))
		for j, w := range s.Words {
			words[j] = aviary.Word{Word: w.Word, Start: round(w.Start, 3), End: round(w.End, 3), Confidence: roundOptional(w.Confidence)}
		}
		s.Words = words
	}
	return encode(transcriptJSON{Object: "transcript", JobID: jobID, Transcript: t})
}

func roundOptional(x *float64) *float64 {
	if x == nil {
		return nil
	}
	r := round(*x, 4)
	return &r
}
