package api_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/probe"
	"github.com/aviary-asr/aviary/store"
)

// wav is mono silence at 16 kHz.
func wav(d time.Duration) []byte {
	data := make([]byte, 2*int(d.Seconds()*aviary.SampleRate))
	var b bytes.Buffer
	b.WriteString("RIFF")
	_ = binary.Write(&b, binary.LittleEndian, uint32(36+len(data)))
	b.WriteString("WAVEfmt ")
	for _, field := range []any{uint32(16), uint16(1), uint16(1), uint32(aviary.SampleRate), uint32(2 * aviary.SampleRate), uint16(2), uint16(16)} {
		_ = binary.Write(&b, binary.LittleEndian, field)
	}
	b.WriteString("data")
	_ = binary.Write(&b, binary.LittleEndian, uint32(len(data)))
	b.Write(data)
	return b.Bytes()
}

// The fakes of the other tests may be wrong about the store and the prober; here are the real ones.
func TestOnTheRealStore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	real, err := store.Open(ctx, "sqlite:"+dir+"/aviary.db", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	blobs, err := store.OpenBlobs(ctx, "file:"+dir+"/blobs")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(r *rig) {
		r.intake.Store, r.intake.Blobs, r.intake.Prober = real, blobs, probe.New(probe.Config{MaxDuration: time.Hour})
		r.config.Store = real
	})
	c := r.newClient()
	defer r.stop()

	submit := func(name string) api.Job {
		t.Helper()
		audio := wav(1500 * time.Millisecond)
		job, err := c.Submit(ctx, api.Upload{Body: bytes.NewReader(audio), Size: int64(len(audio)), Options: aviary.Options{Name: name, Labels: map[string]string{"n": name}}})
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	one, two := submit("один.wav"), submit("two.wav")
	if one.Audio.Container != "wav" || one.Audio.DurationSeconds != 1.5 || one.Audio.SampleRate != 16000 || one.Name != "один.wav" {
		t.Errorf("submitted: %+v", one)
	}
	if got, err := c.Job(ctx, two.ID); err != nil || got.Queue == nil || got.Queue.Position != 2 || got.Queue.AudioSecondsAhead != 1.5 {
		t.Errorf("second in the queue: %+v %v", got, err)
	}
	if list, err := c.List(ctx, api.ListOptions{Limit: 1}); err != nil || len(list.Data) != 1 || !list.HasMore || list.Data[0].ID != two.ID {
		t.Errorf("list: %+v %v", list, err)
	}
	if q, err := c.Queue(ctx); err != nil || q.JobsQueued != 2 || q.AudioSecondsQueued != 3 || q.DemandWorkerEquivalents == 0 {
		t.Errorf("queue: %+v %v", q, err)
	}

	// The worker's side: one attempt that succeeds.
	tickets, err := real.Dispatch(ctx, aviary.PriorityInteractive, 1)
	if err != nil || len(tickets) != 1 || tickets[0].JobID != one.ID {
		t.Fatalf("tickets: %+v %v", tickets, err)
	}
	running, err := real.StartAttempt(ctx, tickets[0], aviary.Claim{Worker: "w", Device: "cpu", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.After(ctx, one, time.Minute); err != nil || got.Status != aviary.StateRunning || got.Attempt != 1 {
		t.Errorf("running: %+v %v", got, err)
	}
	if err := real.FinishAttempt(ctx, aviary.AttemptRef{JobID: one.ID, Attempt: running.Attempt}, talk()); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Wait(ctx, one.ID, nil); err != nil || got.Status != aviary.StateSucceeded || got.Attention == nil || got.Attempt != 1 || got.Error != nil {
		t.Errorf("succeeded: %+v %v", got, err)
	}
	if text, err := c.TranscriptAs(ctx, one.ID, "text"); err != nil || string(text) != talk().Text+"\n" {
		t.Errorf("transcript: %q %v", text, err)
	}
	if list, err := c.Attempts(ctx, one.ID); err != nil || len(list.Data) != 1 || list.Data[0].Outcome != aviary.OutcomeSucceeded {
		t.Errorf("attempts: %+v %v", list, err)
	}

	if got, err := c.Cancel(ctx, two.ID); err != nil || got.Status != aviary.StateCanceled {
		t.Errorf("canceled: %+v %v", got, err)
	}
	if got, err := c.Retry(ctx, two.ID); err != nil || got.Status != aviary.StateQueued {
		t.Errorf("retried: %+v %v", got, err)
	}
	if _, err := c.Retry(ctx, one.ID); aviary.CodeOf(err) != aviary.CodeStateConflict {
		t.Errorf("retry of a success: %v", err)
	}
	if err := c.Delete(ctx, two.ID, false); aviary.CodeOf(err) != aviary.CodeJobActive {
		t.Errorf("delete: %v", err)
	}
	for range 2 { // it is idempotent
		if err := c.Delete(ctx, two.ID, true); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	_, err = c.Job(ctx, two.ID)
	var said *api.Answer
	if aviary.CodeOf(err) != aviary.CodeJobExpired || !errors.As(err, &said) || said.Problem.Job.Status != aviary.StateExpired {
		t.Errorf("tombstone: %v", err)
	}
	for _, key := range []string{two.ID, two.ID + ".flac"} {
		if _, err := blobs.Open(ctx, key); aviary.CodeOf(err) != aviary.CodeNotFound {
			t.Errorf("the audio is still there: %v", err)
		}
	}
	for _, call := range []func() error{
		func() error { _, err := c.Transcript(ctx, two.ID); return err },
		func() error { _, err := c.Retry(ctx, two.ID); return err },
		func() error { _, err := c.Cancel(ctx, two.ID); return err },
	} {
		if err := call(); aviary.CodeOf(err) != aviary.CodeJobExpired {
			t.Errorf("of a deleted job: %v", err)
		}
	}
	if _, err := c.Submit(ctx, api.Upload{Body: bytes.NewReader([]byte("<html>")), Size: 6}); aviary.CodeOf(err) != aviary.CodeMediaTypeUnsupported {
		t.Errorf("a page: %v", err)
	}
}
