//go:build unix

package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store"
)

// sound is a world without processes in which all is well: a job that succeeded after a lost attempt, one that failed, one that was canceled.
func sound(t *testing.T) (w world, breakIt func(statement string)) {
	t.Helper()
	url := "sqlite:" + filepath.Join(t.TempDir(), "aviary.db")
	s, err := store.Open(t.Context(), url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	blobs, err := store.OpenBlobs(t.Context(), "file:"+filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	w = world{db: openSQL(t, url), blobs: blobs, recount: s.Recount,
		node: func(worker string) string { return worker }, debris: func() ([]string, error) { return nil, nil }}
	for i, m := range []mode{modeOK, modeBad, modeOK} {
		e := &entry{script: script{mode: m, id: int32(i)}, job: fmt.Sprintf("job_%d", i), canceled: i == 2}
		w.ledger = append(w.ledger, e)
		create(t, s, blobs, e)
	}
	ref := claim(t, s, "job_0", "w")
	must(t, s.ReleaseAttempt(t.Context(), ref))
	ref = claim(t, s, "job_0", "w")
	must(t, s.FinishAttempt(t.Context(), ref, aviary.Transcript{Text: w.ledger[0].text(), Segments: []aviary.Segment{}}))
	ref = claim(t, s, "job_1", "w")
	_, err = s.FailAttempt(t.Context(), ref, aviary.Failure{Problem: aviary.ProblemOf(aviary.Errorf(aviary.CodeAudioBroken, "", "Bad.")), Charge: true})
	must(t, err)
	_, err = s.Cancel(t.Context(), "job_2")
	must(t, err)
	return w, func(statement string) {
		t.Helper()
		if r, err := w.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		} else if n, err := r.RowsAffected(); err != nil || n == 0 {
			t.Fatalf("%s: nothing was broken, %v", statement, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, s aviary.Store, blobs aviary.Blobs, e *entry) {
	t.Helper()
	job := aviary.Job{ID: e.job, Tenant: aviary.DefaultTenant, MaxAttempts: 3, BlobKey: e.job, AudioKey: e.job + ".flac",
		Options: aviary.Options{Priority: aviary.PriorityInteractive}}
	sum := sha256.Sum256(e.wav())
	job.Audio = aviary.Audio{Container: "wav", Codec: "pcm_s16le", SampleRate: aviary.SampleRate, Channels: 1, Duration: time.Second, SHA256: hex.EncodeToString(sum[:])}
	for _, key := range []string{job.BlobKey, job.AudioKey} {
		staged, err := blobs.Stage(t.Context())
		must(t, err)
		_, err = staged.Write(e.wav())
		must(t, err)
		must(t, staged.Commit(t.Context(), key))
	}
	_, err := s.CreateJob(t.Context(), job, aviary.QueueLimits{})
	must(t, err)
}

func claim(t *testing.T, s aviary.Store, id, worker string) aviary.AttemptRef {
	t.Helper()
	tickets, err := s.Dispatch(t.Context(), []string{id})
	if err != nil || len(tickets) != 1 {
		t.Fatalf("%v, %v", tickets, err)
	}
	job, err := s.StartAttempt(t.Context(), tickets[0], aviary.Claim{Worker: worker, Node: "n", Device: "cpu", Lease: time.Minute})
	must(t, err)
	return aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt}
}

// TestTheInvariantsSee breaks a sound world in each way that an invariant is about, and wants that invariant to say so.
func TestTheInvariantsSee(t *testing.T) {
	t.Parallel()
	const result = `INSERT INTO transcripts (job_id, attempt, body, created_at) VALUES `
	tests := []struct {
		rule, name string
		statement  string
		change     func(w *world)
	}{
		{rule: "", name: "a sound world"},
		{rule: "V1", name: "a job that was accepted is gone", statement: `DELETE FROM jobs WHERE id = 'job_2'`},
		{rule: "V1", name: "two clients were told the same job", change: func(w *world) { w.ledger[2].job = "job_0" }},
		{rule: "V2", name: "queued for ever", statement: `UPDATE jobs SET state = 'queued', finished_at = NULL WHERE id = 'job_2'`},
		{rule: "V2", name: "running for ever", statement: `UPDATE jobs SET state = 'running', lease_until = 1, finished_at = NULL WHERE id = 'job_1'`},
		{rule: "V3", name: "a result is missing", statement: `DELETE FROM transcripts WHERE job_id = 'job_0'`},
		{rule: "V3", name: "a failed job has a result", statement: result + `('job_1', 1, '{"text":"recording 1"}', 1)`},
		{rule: "V4", name: "the result of another attempt", statement: `UPDATE transcripts SET attempt = 1 WHERE job_id = 'job_0'`},
		{rule: "V4", name: "another file", statement: `UPDATE jobs SET audio_sha256 = 'abc' WHERE id = 'job_0'`},
		{rule: "V4", name: "a file is missing", change: func(w *world) { _ = w.blobs.Delete(context.Background(), "job_1.flac") }},
		{rule: "V5", name: "ended twice", statement: `UPDATE attempts SET outcome = 'succeeded' WHERE job_id = 'job_0' AND attempt = 1`},
		{rule: "V5", name: "succeeded in no attempt", statement: `UPDATE attempts SET outcome = 'lost' WHERE job_id = 'job_0' AND attempt = 2`},
		{rule: "V5", name: "an attempt is open", statement: `UPDATE attempts SET outcome = '', ended_at = NULL WHERE job_id = 'job_1'`},
		{rule: "V5", name: "the row is behind", statement: `UPDATE jobs SET attempt = 1 WHERE id = 'job_0'`},
		{rule: "V6", name: "two attempts on a device", statement: `UPDATE attempts SET started_at = started_at - 60000000 WHERE job_id = 'job_1'`},
		{rule: "V6", name: "an engine found its device in use", change: func(w *world) { w.engines = []engineEvent{{Event: eventOverlap}} }},
		{rule: "V7", name: "a good recording failed", change: func(w *world) { w.ledger[1].mode = modeOK }},
		{rule: "V7", name: "a bad recording did not fail", change: func(w *world) { w.ledger[0].mode = modeBad }},
		{rule: "V7", name: "a recording that kills was given up too early", change: func(w *world) { w.ledger[1].mode = modeKill }},
		{rule: "V7", name: "canceled by nobody", change: func(w *world) { w.ledger[2].canceled = false }},
		{rule: "V7", name: "the transcript of another recording", change: func(w *world) { w.ledger[0].id = 17 }},
		{rule: "V7", name: "failed without a reason", statement: `UPDATE jobs SET problem = NULL WHERE id = 'job_1'`},
		{rule: "V8", name: "a counter is wrong", statement: `UPDATE counters SET jobs = jobs + 1 WHERE state = 'succeeded' AND priority = 'interactive'`},
		{rule: "V8", name: "a task is left", change: func(w *world) { w.debris = func() ([]string, error) { return []string{"asynq:{bulk}:active"}, nil } }},
	}
	for _, tt := range tests {
		t.Run(strings.TrimSpace(tt.rule+" "+tt.name), func(t *testing.T) {
			t.Parallel()
			w, breakIt := sound(t)
			if tt.statement != "" {
				breakIt(tt.statement)
			}
			if tt.change != nil {
				tt.change(&w)
			}
			found, err := verify(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			if seen := slices.ContainsFunc(found, func(v violation) bool { return v.rule == tt.rule }); seen != (tt.rule != "") || tt.rule == "" && len(found) > 0 {
				t.Errorf("%s is not seen: %v", tt.rule, found)
			}
		})
	}
}

func TestRecordingsAreWAV(t *testing.T) {
	s := script{id: 3, audio: time.Second}
	if b := s.wav(); len(b) != 44+2*aviary.SampleRate || !bytes.HasPrefix(b, []byte("RIFF")) {
		t.Errorf("%d bytes", len(b))
	}
}
