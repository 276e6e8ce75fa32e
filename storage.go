package aviary

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// SystemBlob is the key of the marker: a blob that says which system the blobs belong to. No job has it, since its jobs' ids are not like it, and no list
// shows it.
const SystemBlob = "aviary-system"

// ErrStorageAway says that the marker is missing or another system's: a disk is not mounted, or the wrong place is configured. What cannot be found there is
// not gone, and what would be written there would be lost.
var ErrStorageAway = errors.New("the storage of recordings is not there")

// Identity is the side of the store that knows which system this is.
type Identity interface {
	// SystemID is random, made with the database, and never changes.
	SystemID(ctx context.Context) (string, error)
	// BindPlace records the marker of the place where the blobs are, unless one is recorded already, and returns the one that is. An empty marker only asks.
	BindPlace(ctx context.Context, marker string) (string, error)
}

// BoundBlobs are blobs that are known to be this system's. They answer that there is no such blob, take one or delete one only while the marker is there;
// otherwise they fail with ErrStorageAway behind CodeStoreUnavailable: what was to be stored was not, and may be later.
type BoundBlobs struct {
	Blobs
	marker string
}

// BindBlobs makes sure that blobs and store belong together, when a process starts. The first process marks the place, and the store remembers the marker: from
// then on no other place will do. It refuses a place that is another system's, one without the marker, and an unmarked one without any blob
// while the store has jobs that should have some. Several processes may do this at once.
func BindBlobs(ctx context.Context, blobs Blobs, store interface {
	Identity
	Backlog(ctx context.Context) (Backlog, error)
},
) (*BoundBlobs, error) {
	id, err := store.SystemID(ctx)
	if err != nil {
		return nil, err
	}
	bound, err := store.BindPlace(ctx, "")
	if err != nil {
		return nil, err
	}
	found, err := readMarker(ctx, blobs)
	if err != nil {
		return nil, err
	}
	if found == "" && bound == "" {
		backlog, err := store.Backlog(ctx)
		if err != nil {
			return nil, err
		}
		if found, err = mark(ctx, blobs, id, backlog); err != nil {
			return nil, err
		}
	}
	if bound == "" && owner(found) == id {
		if bound, err = store.BindPlace(ctx, found); err != nil {
			return nil, err
		}
	}
	if err := judgeMarker(blobs, id, bound, found); err != nil {
		return nil, err
	}
	return &BoundBlobs{Blobs: blobs, marker: bound}, nil
}

// judgeMarker says why a place is not the one that it should be, and what can be done.
func judgeMarker(blobs Blobs, id, bound, found string) error {
	at := fmt.Sprintf("the blob %s", SystemBlob)
	if f, ok := blobs.(interface{ Path(key string) string }); ok {
		at = "the file " + f.Path(SystemBlob)
	}
	switch {
	case found == bound && bound != "":
		return nil
	case found == "":
		return fmt.Errorf("%w: the place has no marker of this system (%s): is the disk mounted, and is it the place that all processes of this system use? "+
			"If the recordings are lost for good, make %s with the content %s", ErrStorageAway, id, at, bound)
	case owner(found) == id:
		return fmt.Errorf("%w: this is not the place that the other processes of this system (%s) use: %s says %s, theirs says %s. "+
			"If this is the right one, write the latter into it", ErrStorageAway, id, at, found, bound)
	}
	return fmt.Errorf("%w: the place belongs to the system %q, and this database is that of the system %s: give each system a place of its own. "+
		"If the other system's database is lost for good, delete %s", ErrStorageAway, owner(found), id, at)
}

// mark makes the marker of a place that has none, and returns what is there then: others may have done the same.
func mark(ctx context.Context, blobs Blobs, id string, b Backlog) (string, error) {
	some, err := blobs.List(ctx, "", 1)
	if err != nil {
		return "", err
	}
	jobs := 0
	for state, n := range b.States {
		if state != StateExpired {
			jobs += n
		}
	}
	if len(some) == 0 && jobs > 0 {
		return "", fmt.Errorf("%w: the database has %d jobs, and the place has not a single recording: is the disk mounted?", ErrStorageAway, jobs)
	}
	staged, err := blobs.Stage(ctx)
	if err != nil {
		return "", err
	}
	defer staged.Discard() //nolint:errcheck // after Commit it does nothing
	if _, err := io.WriteString(staged, id+"/"+rand.Text()+"\n"); err != nil {
		return "", err
	}
	if err := staged.Commit(ctx, SystemBlob); err != nil && CodeOf(err) != CodeStateConflict {
		return "", err
	}
	return readMarker(ctx, blobs)
}

// owner is the system that a marker names. The rest tells apart places that processes of one system have marked at the same time.
func owner(marker string) string {
	id, _, _ := strings.Cut(marker, "/")
	return id
}

// readMarker reads the marker of a place; empty if there is none.
func readMarker(ctx context.Context, blobs Blobs) (string, error) {
	const op, longest = "storage.marker", 256
	blob, err := blobs.Open(ctx, SystemBlob)
	if CodeOf(err) == CodeNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer blob.Close() //nolint:errcheck // read only
	text, err := io.ReadAll(io.NewSectionReader(blob, 0, longest))
	if err != nil {
		return "", WrapError(CodeInternal, op, err, "The storage failed.")
	}
	if marker := strings.TrimSpace(string(text)); marker != "" {
		return marker, nil
	}
	return "(nobody)", nil
}

// Check says whether the marker is there and ours. It reads one small blob.
func (b *BoundBlobs) Check(ctx context.Context) error {
	const op = "storage.check"
	found, err := readMarker(ctx, b.Blobs)
	switch {
	case err == nil && found == b.marker:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && found == "":
		err = errors.New("the marker is missing: is the disk mounted?")
	case err == nil:
		err = fmt.Errorf("the marker says %q, not %q", found, b.marker)
	}
	return away(op, err)
}

func away(op string, err error) error {
	return WrapError(CodeStoreUnavailable, op, fmt.Errorf("%w: %w", ErrStorageAway, err), "The storage of recordings is not there.")
}

// Open implements Blobs. That there is no such blob is only said of the right place.
func (b *BoundBlobs) Open(ctx context.Context, key string) (Blob, error) {
	blob, err := b.Blobs.Open(ctx, key)
	if err != nil {
		if away := b.Check(ctx); away != nil {
			return nil, away
		}
	}
	return blob, err
}

// Stage implements Blobs. An upload is refused before its bytes are read, and again when it would be committed.
func (b *BoundBlobs) Stage(ctx context.Context) (Staged, error) {
	if err := b.Check(ctx); err != nil {
		return nil, err
	}
	staged, err := b.Blobs.Stage(ctx)
	if err != nil {
		return nil, err
	}
	return boundStaged{staged, b}, nil
}

// Delete implements Blobs. Its error is not that of the others: the job's row has been changed by then.
func (b *BoundBlobs) Delete(ctx context.Context, key string) error {
	const op = "storage.delete"
	if err := b.refuseMarker(key); err != nil {
		return err
	}
	if err := b.Check(ctx); err != nil {
		return WrapError(CodeInternal, op, err, "The recording could not be deleted.")
	}
	return b.Blobs.Delete(ctx, key)
}

// List implements Blobs.
func (b *BoundBlobs) List(ctx context.Context, after string, limit int) ([]BlobInfo, error) {
	if err := b.Check(ctx); err != nil {
		return nil, err
	}
	return b.Blobs.List(ctx, after, limit)
}

// Sweep removes what processes left behind that died, where the kind of blobs has any.
func (b *BoundBlobs) Sweep(ctx context.Context) error {
	if s, ok := b.Blobs.(interface{ Sweep(context.Context) error }); ok {
		return s.Sweep(ctx)
	}
	return nil
}

func (*BoundBlobs) refuseMarker(key string) error {
	const op = "storage.key"
	if key == SystemBlob {
		return Errorf(CodeMalformedRequest, op, "The name %q is reserved.", key)
	}
	return nil
}

type boundStaged struct {
	Staged
	blobs *BoundBlobs
}

// Commit implements Staged.
func (s boundStaged) Commit(ctx context.Context, key string) error {
	if err := s.blobs.refuseMarker(key); err != nil {
		return err
	}
	if err := s.blobs.Check(ctx); err != nil {
		return err
	}
	return s.Staged.Commit(ctx, key)
}

// storageGate asks whether bound blobs are there, for at most patience: a mount whose server is gone may not answer for hours, and no context ends that.
// One that has not answered is not asked again before it has.
type storageGate struct {
	patience time.Duration // zero is 30 s
	asking   chan struct{} // holds one while a question is out
	once     sync.Once
}

// check says whether bound blobs are there. Of others nothing is known.
func (g *storageGate) check(ctx context.Context, blobs Blobs) error {
	const op = "storage.check"
	b, ok := blobs.(*BoundBlobs)
	if !ok {
		return nil
	}
	g.once.Do(func() { g.asking = make(chan struct{}, 1) })
	patience := time.NewTimer(cmp.Or(g.patience, 30*time.Second))
	defer patience.Stop()
	answer := make(chan error, 1)
	select {
	case g.asking <- struct{}{}:
		go func() {
			answer <- b.Check(ctx)
			<-g.asking
		}()
	case <-patience.C:
		return away(op, errors.New("it has not answered yet"))
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-patience.C:
		return away(op, errors.New("it does not answer"))
	case <-ctx.Done():
		return ctx.Err()
	}
}
