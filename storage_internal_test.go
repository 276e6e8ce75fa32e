package aviary

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// frozen is a place that does not answer before it is thawed, whatever becomes of the context.
type frozen struct {
	Blobs
	asked  atomic.Int32
	thawed chan struct{}
}

func (f *frozen) Open(context.Context, string) (Blob, error) {
	f.asked.Add(1)
	<-f.thawed
	return nil, Errorf(CodeNotFound, "frozen", "There is nothing.")
}

// A storage that hangs holds nobody up for longer than the gate's patience, and holds one goroutine, however often it is asked.
func TestStorageThatHangs(t *testing.T) {
	t.Parallel()
	f := &frozen{thawed: make(chan struct{})}
	blobs := &BoundBlobs{Blobs: f, marker: "me"}
	g := &storageGate{patience: 5 * time.Millisecond}
	for range 5 {
		if err := g.check(t.Context(), blobs); !errors.Is(err, ErrStorageAway) || CodeOf(err) != CodeStoreUnavailable {
			t.Fatalf("got %v", err)
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	g.patience = time.Minute
	if err := g.check(stopped, blobs); !errors.Is(err, context.Canceled) {
		t.Errorf("a stop: %v", err)
	}
	if n := f.asked.Load(); n != 1 {
		t.Errorf("it was asked %d times at once", n)
	}
	close(f.thawed)
	if err := g.check(t.Context(), blobs); !errors.Is(err, ErrStorageAway) || f.asked.Load() != 2 {
		t.Errorf("when it answers: %v, asked %d times", err, f.asked.Load())
	}
}
