package api_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
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
	tickets, err := real.Dispatch(ctx, []string{one.ID})
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

// Two processes share a store, and get one request 32 times at once: one job comes of it, one pair of blobs, and each answer names it.
func TestOneKeyInTwoProcessesOnTheRealStore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	blobs, err := store.OpenBlobs(ctx, "file:"+dir+"/blobs")
	if err != nil {
		t.Fatal(err)
	}
	var ids atomic.Int64
	var clients []*api.Client
	for range 2 {
		real, err := store.Open(ctx, "sqlite:"+dir+"/aviary.db", store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer real.Close()
		r := start(t, func(r *rig) {
			r.intake.Store, r.intake.Blobs, r.intake.Prober, r.config.Store = real, blobs, probe.New(probe.Config{MaxDuration: time.Hour}), real
			r.intake.NewID = func() string { return fmt.Sprintf("job_%026d", ids.Add(1)) }
			r.config.Tenant = api.TenantFromHeader("X-Caller")
			r.intake.Limits.Queue.TenantAudio = 4 * time.Second
		})
		defer r.stop()
		c, err := api.NewClient(api.ClientConfig{Server: r.url, HTTP: r.client, Backoff: time.Millisecond, Retries: 1000})
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	audio := wav(1500 * time.Millisecond)
	upload := func(key string) api.Upload {
		return api.Upload{Body: bytes.NewReader(audio), Size: int64(len(audio)), Options: aviary.Options{Name: "a.wav"}, IdempotencyKey: key}
	}
	jobs := make([]api.Job, 32)
	var wg sync.WaitGroup
	for i := range jobs {
		wg.Go(func() {
			var err error
			if jobs[i], err = clients[i%2].Submit(ctx, upload("k")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, job := range jobs {
		if job.ID != jobs[0].ID {
			t.Errorf("jobs %s and %s", job.ID, jobs[0].ID)
		}
	}
	c := clients[0]
	if list, err := c.List(ctx, api.ListOptions{}); err != nil || len(list.Data) != 1 {
		t.Errorf("%d jobs, %v", len(list.Data), err)
	}
	if kept, err := blobs.List(ctx, "", 10); err != nil || len(kept) != 2 {
		t.Errorf("blobs %v, %v", kept, err)
	}
	other := upload("k")
	other.Options.Name = "b.wav"
	if _, err := c.Submit(ctx, other); aviary.CodeOf(err) != aviary.CodeIdempotencyKeyReused {
		t.Errorf("other options: %v", err)
	}
	// 3 s are open now, of 4 s that a caller may have. A refusal takes no key.
	if _, err := c.Submit(ctx, upload("l")); err != nil {
		t.Fatal(err)
	}
	c.Retries = -1
	for range 2 {
		var e *aviary.Error
		if _, err := c.Submit(ctx, upload("m")); !errors.As(err, &e) || e.Code != aviary.CodeQuotaExceeded || e.Limit != 4 || e.Actual != 4.5 || e.Wait != 30*time.Second {
			t.Errorf("beyond the limit of a caller: %v", err)
		}
	}
	if err := c.Delete(ctx, jobs[0].ID, true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(ctx, upload("m")); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if _, err := c.Submit(ctx, upload("k")); aviary.CodeOf(err) != aviary.CodeJobExpired {
		t.Errorf("the deleted job's request: %v", err)
	}
}

// The disk fills up at every point of a submit, one after the other: the client hears storage_full, with a time to come back, and nothing stays. It is the real
// prober and the real encoder that write.
func TestTheDiskFillsUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real, err := store.Open(t.Context(), "sqlite:"+dir+"/aviary.db", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	files, err := store.OpenBlobs(t.Context(), "file:"+dir+"/blobs")
	if err != nil {
		t.Fatal(err)
	}
	disk := &fillingDisk{Blobs: files}
	r := start(t, func(r *rig) {
		r.intake.Store, r.intake.Blobs, r.intake.Prober, r.config.Store = real, disk, probe.New(probe.Config{MaxDuration: time.Hour}), real
	})
	defer r.stop()
	audio := wav(1500 * time.Millisecond)
	for point := 1; ; point++ {
		if point > 1000 {
			t.Fatal("the disk is full at each of 1000 points, and no submit is done")
		}
		disk.left.Store(int64(point))
		a := r.do("POST", "/v1/jobs", bytes.NewReader(audio), "Idempotency-Key", "k")
		if a.status == http.StatusAccepted {
			if point < 8 {
				t.Errorf("a submit has only %d points at which the disk can be full", point)
			}
			break
		}
		a.problem(t, 503, aviary.CodeStorageFull)
		kept, err := files.List(t.Context(), "", 10)
		staged, globErr := filepath.Glob(dir + "/blobs/staging/*")
		list, listErr := real.Jobs(t.Context(), aviary.JobQuery{Limit: 10})
		if err := errors.Join(err, globErr, listErr); err != nil || len(kept)+len(staged)+len(list.Jobs) > 0 {
			t.Fatalf("full at point %d: left blobs %v, staged %v, jobs %v, %v", point, kept, staged, list.Jobs, err)
		}
	}
}

// fillingDisk is full after so many more operations.
type fillingDisk struct {
	aviary.Blobs
	left atomic.Int64
}

func (d *fillingDisk) full() error {
	if d.left.Add(-1) >= 0 {
		return nil
	}
	return aviary.WrapError(aviary.CodeStorageFull, "disk", syscall.ENOSPC, "The server has no room for this.")
}

func (d *fillingDisk) Stage(ctx context.Context) (aviary.Staged, error) {
	if err := d.full(); err != nil {
		return nil, err
	}
	staged, err := d.Blobs.Stage(ctx)
	return &fillingStage{staged, d}, err
}

type fillingStage struct {
	aviary.Staged
	disk *fillingDisk
}

func (s *fillingStage) Write(p []byte) (int, error) {
	if err := s.disk.full(); err != nil {
		return 0, err
	}
	return s.Staged.Write(p)
}

func (s *fillingStage) WriteAt(p []byte, off int64) (int, error) {
	if err := s.disk.full(); err != nil {
		return 0, err
	}
	return s.Staged.WriteAt(p, off)
}

func (s *fillingStage) Commit(ctx context.Context, key string) error {
	if err := s.disk.full(); err != nil {
		return err
	}
	return s.Staged.Commit(ctx, key)
}
