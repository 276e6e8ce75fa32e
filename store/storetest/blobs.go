package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// RunBlobs holds a blob store to all that it promises. open makes an empty one.
func RunBlobs(t *testing.T, open func(t testing.TB) aviary.Blobs) {
	for name, test := range map[string]func(t *testing.T, b aviary.Blobs){
		"a blob comes back":      testBlobRoundTrip,
		"nothing before commit":  testBlobInvisible,
		"reading while staged":   testBlobStagedReads,
		"writing over":           testBlobWriteAt,
		"discard leaves nothing": testBlobDiscard,
		"a key is taken once":    testBlobTaken,
		"delete":                 testBlobDelete,
		"names":                  testBlobNames,
		"the marker of a system": testBlobMarker,
		"a key is taken at once": testBlobTakenAtOnce,
		"a list in pages":        testBlobList,
		"a list while it moves":  testBlobListMoves,
		"many at once":           testBlobsAtOnce,
		"room":                   testBlobRoom,
		"an ended context":       testBlobEndedContext,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// stage writes body into a new staged blob, in several writes.
func stage(t testing.TB, b aviary.Blobs, body []byte) aviary.Staged {
	t.Helper()
	staged := got(b.Stage(t.Context()))(t)
	for chunk := 1; len(body) > 0; chunk *= 7 {
		n := got(staged.Write(body[:min(chunk, len(body))]))(t)
		body = body[n:]
	}
	return staged
}

func commit(t testing.TB, b aviary.Blobs, key string, body []byte) {
	t.Helper()
	staged := stage(t, b, body)
	if err := errors.Join(staged.Commit(t.Context(), key), staged.Discard()); err != nil {
		t.Fatal(err)
	}
}

// read is the whole of a committed blob.
func read(t testing.TB, b aviary.Blobs, key string) []byte {
	t.Helper()
	blob := got(b.Open(t.Context(), key))(t)
	body := got(io.ReadAll(io.NewSectionReader(blob, 0, blob.Size())))(t)
	if err := blob.Close(); err != nil {
		t.Fatal(err)
	}
	return body
}

func absent(t testing.TB, b aviary.Blobs, key string) {
	t.Helper()
	_, err := b.Open(t.Context(), key)
	same(t, "opening "+key, kind(err), string(aviary.CodeNotFound))
}

func testBlobRoundTrip(t *testing.T, b aviary.Blobs) {
	for n, body := range [][]byte{{}, {0}, bytes.Repeat([]byte("0123456789"), 100_000)} {
		key := fmt.Sprint("job_", n)
		commit(t, b, key, body)
		if !bytes.Equal(read(t, b, key), body) {
			t.Errorf("a blob of %d bytes came back changed", len(body))
		}
	}
	blob := got(b.Open(t.Context(), "job_2"))(t)
	defer blob.Close() //nolint:errcheck // read only
	part := make([]byte, 4)
	n, err := blob.ReadAt(part, 999_998)
	if n != 2 || !errors.Is(err, io.EOF) || string(part[:n]) != "89" {
		t.Errorf("reading across the end: %d, %v, %q", n, err, part[:n])
	}
}

// What was written can be written over before the commit, and nothing else.
func testBlobWriteAt(t *testing.T, b aviary.Blobs) {
	staged := stage(t, b, []byte("0123456789"))
	for at, text := range map[int64]string{0: "ab", 4: "cd", 9: "z", 10: ""} {
		if n, err := staged.WriteAt([]byte(text), at); err != nil || n != len(text) {
			t.Errorf("writing %q at %d: %d, %v", text, at, n, err)
		}
	}
	for at, text := range map[int64]string{9: "xy", 10: "x", 11: "", -1: "x"} {
		if _, err := staged.WriteAt([]byte(text), at); err == nil {
			t.Errorf("writing %q at %d of 10 bytes: no error", text, at)
		}
	}
	if _, err := staged.Write([]byte("!")); err != nil {
		t.Error(err)
	}
	same(t, "size", staged.Size(), int64(11))
	if err := errors.Join(staged.Commit(t.Context(), "over"), staged.Discard()); err != nil {
		t.Fatal(err)
	}
	same(t, "content", string(read(t, b, "over")), "ab23cd678z!")
}

func testBlobInvisible(t *testing.T, b aviary.Blobs) {
	staged := stage(t, b, []byte("audio"))
	absent(t, b, "job_1")
	if err := staged.Commit(t.Context(), "job_1"); err != nil {
		t.Fatal(err)
	}
	same(t, "blob", string(read(t, b, "job_1")), "audio")
	if err := staged.Discard(); err != nil {
		t.Errorf("discard after commit: %v", err)
	}
	same(t, "blob after a discard", string(read(t, b, "job_1")), "audio")
	if err := staged.Commit(t.Context(), "job_2"); err == nil {
		t.Error("an upload was committed twice")
	}
	absent(t, b, "job_2")
}

func testBlobStagedReads(t *testing.T, b aviary.Blobs) {
	staged := stage(t, b, []byte("0123456789"))
	defer staged.Discard() //nolint:errcheck // the test is over
	same(t, "size", staged.Size(), int64(10))
	part := make([]byte, 3)
	got(staged.ReadAt(part, 4))(t)
	same(t, "a part", string(part), "456")
	got(staged.Write([]byte("ab")))(t)
	same(t, "size", staged.Size(), int64(12))
	got(staged.ReadAt(part, 9))(t)
	same(t, "what was written after a read", string(part), "9ab")
}

func testBlobDiscard(t *testing.T, b aviary.Blobs) {
	staged := stage(t, b, []byte("audio"))
	for range 2 {
		if err := staged.Discard(); err != nil {
			t.Fatal(err)
		}
	}
	if err := staged.Commit(t.Context(), "job_1"); err == nil {
		t.Error("what was discarded could be committed")
	}
	absent(t, b, "job_1")
}

func testBlobTaken(t *testing.T, b aviary.Blobs) {
	commit(t, b, "job_1", []byte("first"))
	staged := stage(t, b, []byte("second"))
	same(t, "the second commit", kind(staged.Commit(t.Context(), "job_1")), string(aviary.CodeStateConflict))
	same(t, "blob", string(read(t, b, "job_1")), "first")
	if err := staged.Commit(t.Context(), "job_2"); err != nil { // the refusal was about the name
		t.Fatal(err)
	}
	same(t, "blob of another name", string(read(t, b, "job_2")), "second")
}

func testBlobDelete(t *testing.T, b aviary.Blobs) {
	commit(t, b, "job_1", []byte("audio"))
	commit(t, b, "job_2", []byte("other"))
	for range 2 { // a missing one is no error
		if err := b.Delete(t.Context(), "job_1"); err != nil {
			t.Fatal(err)
		}
	}
	absent(t, b, "job_1")
	same(t, "another blob", string(read(t, b, "job_2")), "other")
}

func testBlobNames(t *testing.T, b aviary.Blobs) {
	for _, key := range []string{"job_01JD2J3K4M5N6P7Q8R9SATBVCW", "a", "A-b_c.9", strings.Repeat("k", 128)} {
		commit(t, b, key, []byte(key))
		same(t, "blob", string(read(t, b, key)), key)
	}
	for _, key := range []string{"", ".", "..", "../job_1", "a/b", "a\\b", "/etc/passwd", ".hidden", "a b", "a\x00b", "ä", "c:", strings.Repeat("k", 129)} {
		staged := stage(t, b, []byte("audio"))
		errs := map[string]error{"commit": staged.Commit(t.Context(), key), "open": second(b.Open(t.Context(), key)), "delete": b.Delete(t.Context(), key)}
		for what, err := range errs {
			same(t, fmt.Sprintf("%s of %q", what, key), kind(err), string(aviary.CodeMalformedRequest))
		}
		if err := staged.Discard(); err != nil {
			t.Error(err)
		}
	}
}

// pages lists all keys, in pages of a size, and holds each page to its size.
func pages(t testing.TB, b aviary.Blobs, size int) []string {
	t.Helper()
	var keys []string
	for after := ""; ; after = keys[len(keys)-1] {
		page := got(b.List(t.Context(), after, size))(t)
		for _, info := range page {
			keys = append(keys, info.Key)
		}
		if len(page) > size {
			t.Fatalf("a page of at most %d has %d blobs", size, len(page))
		}
		if len(page) < size {
			return keys
		}
	}
}

// Whatever the pages, every committed blob is listed once, in one order, with its time; what is staged or deleted is not.
func testBlobList(t *testing.T, b aviary.Blobs) {
	same(t, "an empty list", len(pages(t, b, 10)), 0)
	before := time.Now().Add(-time.Minute) // the clock of the blobs may differ a little, or be coarse
	staged := stage(t, b, []byte("audio"))
	defer staged.Discard() //nolint:errcheck // the test is over
	want := []string{"A-b_c.9", "staging"}
	for n := range 60 {
		want = append(want, fmt.Sprintf("job_%02d", n))
	}
	for _, key := range want {
		commit(t, b, key, []byte(key))
	}
	if err := b.Delete(t.Context(), want[10]); err != nil {
		t.Fatal(err)
	}
	want = slices.Delete(want, 10, 11)
	all := pages(t, b, len(want)+1)
	same(t, "all keys", slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(want)))
	for _, size := range []int{1, 2, 7, len(want) - 1, len(want)} {
		same(t, fmt.Sprintf("keys in pages of %d", size), pages(t, b, size), all)
	}
	for _, info := range got(b.List(t.Context(), "", len(want)))(t) {
		if info.Modified.Before(before) || info.Modified.After(time.Now().Add(time.Minute)) {
			t.Errorf("%s was written at %v, it says; now is %v", info.Key, info.Modified, time.Now())
		}
	}
	for _, key := range []string{"a/b", "..", ".hidden"} {
		same(t, "a list from after "+key, kind(second(b.List(t.Context(), key, 1))), string(aviary.CodeMalformedRequest))
	}
}

// Who deletes what a page lists finds the next page where it was, from the key that is no more.
func testBlobListMoves(t *testing.T, b aviary.Blobs) {
	for n := range 20 {
		commit(t, b, fmt.Sprintf("job_%02d", n), []byte("audio"))
	}
	all := pages(t, b, 100)
	var seen []string
	for after := ""; ; after = seen[len(seen)-1] {
		page := got(b.List(t.Context(), after, 3))(t)
		if len(page) == 0 {
			break
		}
		for _, info := range page {
			seen = append(seen, info.Key)
			if err := b.Delete(t.Context(), info.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	same(t, "keys", seen, all)
	same(t, "what is left", len(pages(t, b, 100)), 0)
}

func testBlobsAtOnce(t *testing.T, b aviary.Blobs) {
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte(n)}, 10_000)
			staged, err := b.Stage(t.Context())
			if err == nil {
				_, err = staged.Write(body)
			}
			if err == nil {
				err = staged.Commit(t.Context(), fmt.Sprint("job_", n))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for n := range 16 {
		if !bytes.Equal(read(t, b, fmt.Sprint("job_", n)), bytes.Repeat([]byte{byte(n)}, 10_000)) {
			t.Errorf("blob %d came back changed", n)
		}
	}
}

func testBlobRoom(t *testing.T, b aviary.Blobs) {
	if free := got(b.FreeBytes(t.Context()))(t); free == 0 {
		t.Error("there is no room, or the store cannot say that it does not know")
	}
}

func testBlobEndedContext(t *testing.T, b aviary.Blobs) {
	commit(t, b, "job_1", []byte("audio"))
	staged := stage(t, b, []byte("audio"))
	defer staged.Discard() //nolint:errcheck // the test is over
	ctx := ended(t)
	for what, err := range map[string]error{
		"stage": second(b.Stage(ctx)), "commit": staged.Commit(ctx, "job_2"), "open": second(b.Open(ctx, "job_1")),
		"delete": b.Delete(ctx, "job_1"), "room": second(b.FreeBytes(ctx)), "list": second(b.List(ctx, "", 10)),
	} {
		same(t, what, kind(err), string(aviary.CodeCanceled))
	}
	absent(t, b, "job_2")
	same(t, "blob", string(read(t, b, "job_1")), "audio")
}
