package aviary_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
)

// mute is a store of which one call hangs until its time is over.
type mute struct {
	*rows
	call       string
	committing bool // the call cannot tell whether it was done
}

func (m mute) hang(ctx context.Context, call string) error {
	if m.call != call {
		return nil
	}
	<-ctx.Done()
	if m.committing {
		return aviary.WrapError(aviary.CodeInternal, "mute", ctx.Err(), "Who knows.")
	}
	return ctx.Err()
}

func (m mute) Requested(ctx context.Context, tenant, key string) (aviary.Job, error) {
	if err := m.hang(ctx, "requested"); err != nil {
		return aviary.Job{}, err
	}
	return m.rows.Requested(ctx, tenant, key)
}

func (m mute) Backlog(ctx context.Context) (aviary.Backlog, error) {
	return aviary.Backlog{}, m.hang(ctx, "backlog")
}

func (m mute) CreateJob(ctx context.Context, j aviary.Job, l aviary.QueueLimits) (aviary.Job, error) {
	if err := m.hang(ctx, "create"); err != nil {
		return aviary.Job{}, err
	}
	return m.rows.CreateJob(ctx, j, l)
}

func (m mute) Job(ctx context.Context, id string) (aviary.Job, error) {
	if m.committing { // as silent as before
		<-ctx.Done()
		return aviary.Job{}, ctx.Err()
	}
	return m.rows.Job(ctx, id)
}

// A store that is silent costs a caller 30 s, and the answer says that nothing was accepted, unless that is not known. A caller who gives up is told
// nothing of the store.
func TestSubmitToASilentStore(t *testing.T) {
	for _, c := range []struct {
		name       string
		call       string
		committing bool
		gone       bool // the caller's own time ends first
		code       aviary.Code
		took       time.Duration
		blobs      int
	}{
		{"at the key", "requested", false, false, aviary.CodeStoreUnavailable, 30 * time.Second, 0},
		{"at the limits", "backlog", false, false, aviary.CodeStoreUnavailable, 30 * time.Second, 0},
		{"at the row", "create", false, false, aviary.CodeStoreUnavailable, 30 * time.Second, 0},
		{"at the commit", "create", true, false, aviary.CodeInternal, 35 * time.Second, 2},
		{"and an impatient caller", "create", false, true, aviary.CodeInternal, time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			in, blobs, store, _ := newIntake(lasting(time.Second))
			in.Store, in.Limits.Queue.Jobs = mute{store, c.call, c.committing}, 5
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if c.gone {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			defer cancel()
			began := time.Now()
			_, _, err := in.Submit(ctx, strings.NewReader("audio"), aviary.Submission{Key: "key"})
			if aviary.CodeOf(err) != c.code || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != c.took || len(blobs.blobs) != c.blobs {
				t.Errorf("silent %s: %v after %v, with %d blobs left; want %s after %v, with %d", c.name, err, time.Since(began), len(blobs.blobs), c.code, c.took, c.blobs)
			}
		})
	}
}
