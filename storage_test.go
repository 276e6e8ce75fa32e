package aviary_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// disk is a shelf that can be taken away.
type disk struct{ *shelf }

func (disk) List(context.Context, string, int) ([]aviary.BlobInfo, error) { return nil, nil }

func (d disk) Open(ctx context.Context, key string) (aviary.Blob, error) {
	if _, err := d.shelf.Open(ctx, key); err != nil {
		return nil, err
	}
	return kept{bytes.NewReader(d.blobs[key])}, nil
}

// kept is a blob that was read from a disk.
type kept struct{ *bytes.Reader }

func (kept) Close() error { return nil }

// identity is a store that has no jobs, and a name.
type identity struct{ place string }

func (*identity) SystemID(context.Context) (string, error)        { return "me", nil }
func (*identity) Backlog(context.Context) (aviary.Backlog, error) { return aviary.Backlog{}, nil }
func (i *identity) BindPlace(_ context.Context, marker string) (string, error) {
	if i.place == "" {
		i.place = marker
	}
	return i.place, nil
}

func bound(t *testing.T, s *shelf) *aviary.BoundBlobs {
	t.Helper()
	b, err := aviary.BindBlobs(t.Context(), disk{s}, &identity{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A worker whose recordings are not there claims nothing; when they are there, one that is missing is the job's failure.
func TestRunClaimsNothingWhileTheStorageIsAway(t *testing.T) {
	s := &shelf{blobs: map[string][]byte{"job_1.flac": {1}}}
	l := &ledger{job: aviary.Job{AudioKey: "job_1.flac", Audio: aviary.Audio{Duration: time.Second}}}
	r, _ := newRunner(l)
	r.Blobs, r.Prober = bound(t, s), hearing{pcm: make(aviary.PCM, aviary.SampleRate)}
	marker := s.blobs[aviary.SystemBlob]
	for _, now := range []string{"", "other/x"} {
		if delete(s.blobs, aviary.SystemBlob); now != "" {
			s.blobs[aviary.SystemBlob] = []byte(now)
		}
		err := r.Run(t.Context(), ticket, says("hi"))
		if !errors.Is(err, aviary.ErrStorageAway) || len(l.claims)+len(l.ends) != 0 {
			t.Errorf("marker %q: %v, claims %v, ends %v", now, err, l.claims, l.ends)
		}
	}
	s.blobs[aviary.SystemBlob] = marker
	if err := r.Run(t.Context(), ticket, says("hi")); err != nil || l.got.Text != "hi" {
		t.Errorf("when it is back: %v, %+v", err, l.got)
	}
	delete(s.blobs, "job_1.flac")
	if err := r.Run(t.Context(), ticket, says("hi")); err != nil || !l.failure.Charge {
		t.Errorf("a recording that is gone: %v, %+v", err, l.failure)
	}
}

// leaving is a prober's blob store whose disk goes away between the claim and the decoding.
type leaving struct {
	*ledger
	shelf *shelf
}

func (l leaving) StartAttempt(ctx context.Context, t aviary.Ticket, c aviary.Claim) (aviary.Job, error) {
	delete(l.shelf.blobs, aviary.SystemBlob)
	delete(l.shelf.blobs, "job_1.flac")
	return l.ledger.StartAttempt(ctx, t, c)
}

// However often that happens, it is never charged, and each time the job comes back later.
func TestAStorageThatGoesAwayIsNeverCharged(t *testing.T) {
	for attempts, want := range map[int]time.Duration{0: 5 * time.Second, 2: 20 * time.Second, 50: 5 * time.Minute} {
		s := &shelf{blobs: map[string][]byte{"job_1.flac": {1}}}
		l := &ledger{job: aviary.Job{AudioKey: "job_1.flac", Attempt: attempts, Audio: aviary.Audio{Duration: time.Second}}}
		r, _ := newRunner(l)
		r.Store, r.Blobs = leaving{l, s}, bound(t, s)
		if err := r.Run(t.Context(), ticket, says("hi")); err != nil {
			t.Fatal(err)
		}
		if f := l.failure; f.Charge || f.Lost || !f.Retry || f.Delay != want {
			t.Errorf("attempt %d: %+v, want a retry after %v", attempts+1, f, want)
		}
	}
}

// What cannot be kept is refused, and leaves nothing: before its bytes are read, and when the disk goes away while they are.
func TestSubmitWhileTheStorageIsAway(t *testing.T) {
	for _, when := range []string{"before", "while it is decoded"} {
		away := false
		h := lasting(time.Second)
		in, s, store, _ := newIntake(h)
		in.Blobs = bound(t, s)
		leave := func(aviary.Normalizing) { delete(s.blobs, aviary.SystemBlob); away = true }
		if h.enter = leave; when == "before" {
			leave(aviary.Normalizing{})
		}
		in.Prober = h
		body := strings.NewReader("0123456789")
		_, _, err := in.Submit(t.Context(), body, aviary.Submission{})
		if aviary.CodeOf(err) != aviary.CodeStoreUnavailable || !errors.Is(err, aviary.ErrStorageAway) || !away {
			t.Errorf("%s: %v", when, err)
		}
		if len(s.blobs)+len(store.jobs)+s.staged != 0 || when == "before" && body.Len() != 10 {
			t.Errorf("%s: left are blobs %q, rows %v, %d staged, %d bytes unread", when, s.blobs, store.jobs, s.staged, body.Len())
		}
	}
}
