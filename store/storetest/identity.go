package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/aviary-asr/aviary"
)

// testIdentity: all handles on one database are one system, another database is another one, and the first place that is named stays.
func testIdentity(t *testing.T, b Backend) {
	t.Parallel()
	ctx := t.Context()
	f, other := fresh(t, b), fresh(t, b)
	second := f.open(b)
	id := got(f.SystemID(ctx))(t)
	if id == "" {
		t.Error("the system has no id")
	}
	same(t, "its id, asked again", got(f.SystemID(ctx))(t), id)
	same(t, "its id, by another handle", got(second.SystemID(ctx))(t), id)
	if got(other.SystemID(ctx))(t) == id {
		t.Error("two databases are one system")
	}
	same(t, "the place before it is known", got(f.BindPlace(ctx, ""))(t), "")
	places := make([]string, 8)
	var racing sync.WaitGroup
	for i := range places {
		racing.Go(func() { places[i], _ = []aviary.Store{f, second}[i%2].BindPlace(ctx, fmt.Sprint("place ", i)) })
	}
	racing.Wait()
	place := places[0]
	if place == "" {
		t.Fatal("no place was bound")
	}
	for i, p := range places {
		same(t, fmt.Sprint("the place that was bound, as the caller ", i, " hears it"), p, place)
	}
	same(t, "asked for", got(f.BindPlace(ctx, ""))(t), place)
	same(t, "the place of another system", got(other.BindPlace(ctx, ""))(t), "")
}

// The marker is a blob like others, but for lists.
func testBlobMarker(t *testing.T, b aviary.Blobs) {
	commit(t, b, aviary.SystemBlob, []byte("mine"))
	commit(t, b, "job_1", []byte("one"))
	list := got(b.List(t.Context(), "", 9))(t)
	if len(list) != 1 || list[0].Key != "job_1" {
		t.Errorf("a list beside the marker: %+v", list)
	}
	if blob := got(b.Open(t.Context(), aviary.SystemBlob))(t); blob.Size() != 4 {
		t.Errorf("the marker has %d bytes", blob.Size())
	} else if err := blob.Close(); err != nil {
		t.Error(err)
	}
}

// Of several that commit one key at the same moment one does, and its bytes stay.
func testBlobTakenAtOnce(t *testing.T, b aviary.Blobs) {
	const racers = 8
	for round := range 20 {
		key := fmt.Sprint("key_", round)
		var staged [racers]aviary.Staged
		for i := range staged {
			staged[i] = stage(t, b, bytes.Repeat([]byte{byte(i)}, 10))
		}
		var errs [racers]error
		var racing sync.WaitGroup
		for i, s := range staged {
			racing.Go(func() { errs[i] = errors.Join(s.Commit(t.Context(), key), s.Discard()) })
		}
		racing.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("%d and %d have both committed %s", winner, i, key)
			case err == nil:
				winner = i
			case aviary.CodeOf(err) != aviary.CodeStateConflict:
				t.Error(err)
			}
		}
		if winner < 0 {
			t.Fatal("nobody has committed")
		}
		blob := got(b.Open(t.Context(), key))(t)
		p := make([]byte, 1)
		if _, err := blob.ReadAt(p, 0); err != nil || int(p[0]) != winner {
			t.Errorf("%d has committed, and the blob is that of %d, %v", winner, p[0], err)
		}
		if err := blob.Close(); err != nil {
			t.Error(err)
		}
	}
}
