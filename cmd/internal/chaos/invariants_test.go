//go:build unix

package chaos

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// violation is an invariant that does not hold.
type violation struct {
	rule string // V1 to V8
	text string
}

func (v violation) String() string { return v.rule + ": " + v.text }

// world is all that the invariants are about. It is read without the code that wrote it, but for the recount.
type world struct {
	db      *sql.DB
	blobs   aviary.Blobs
	ledger  []*entry
	engines []engineEvent
	node    func(worker string) string // where a worker runs: a device of a node is one device, whatever process has it
	debris  func() ([]string, error)   // of Redis
	recount func(ctx context.Context) ([]string, error)
}

// row is a job, attemptRow an attempt and result a transcript, as they are stored.
type row struct {
	id, state, problem, blobKey, audioKey, sha string
	attempt, lost, fails                       int
}

type attemptRow struct {
	job, worker, device, outcome string
	attempt                      int
	started                      time.Time
	ended                        time.Time // zero while it runs
}

type result struct {
	job     string
	attempt int
	text    string
}

// verify checks the invariants.
//
//	V1 every id that got a 202 has a row             V5 at most one terminal event per job
//	V2 no row is queued or running                   V6 attempts of a device never overlap
//	V3 succeeded <=> exactly one result              V7 good inputs are not failed, bad ones are
//	V4 result.attempt = row.attempt, blobs match     V8 counters = recomputed; no debris in Redis
func verify(ctx context.Context, w world) ([]violation, error) {
	rows, err := readRows(ctx, w.db)
	if err != nil {
		return nil, err
	}
	attempts, err := readAttempts(ctx, w.db)
	if err != nil {
		return nil, err
	}
	results, err := readResults(ctx, w.db)
	if err != nil {
		return nil, err
	}
	c := checker{rows: rows, attempts: attempts, results: results}
	c.acceptedExist(w.ledger)
	c.allEnded()
	c.oneResult()
	if err := c.blobsMatch(ctx, w.blobs); err != nil {
		return nil, err
	}
	c.oneEnd()
	c.noOverlap(w.engines, w.node)
	c.rightEnd(w.ledger)
	drift, err := w.recount(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range drift {
		c.broken("V8", "a counter was wrong: %s", d)
	}
	debris, err := w.debris()
	if err != nil {
		return nil, err
	}
	for _, d := range debris {
		c.broken("V8", "left in Redis: %s", d)
	}
	return c.found, nil
}

type checker struct {
	rows     map[string]row
	attempts map[string][]attemptRow // by job, in order
	results  map[string][]result
	found    []violation
}

func (c *checker) broken(rule, format string, args ...any) {
	c.found = append(c.found, violation{rule, fmt.Sprintf(format, args...)})
}

// acceptedExist is V1. Two recordings with the same id are a doubled answer.
func (c *checker) acceptedExist(ledger []*entry) {
	seen := map[string]*entry{}
	for _, e := range ledger {
		if _, ok := c.rows[e.job]; !ok {
			c.broken("V1", "%v was accepted as %s, and there is no such job", e.script, e.job)
		}
		if other := seen[e.job]; other != nil && other.id != e.id {
			c.broken("V1", "%v and %v were both accepted as %s", other.script, e.script, e.job)
		}
		seen[e.job] = e
	}
}

// allEnded is V2.
func (c *checker) allEnded() {
	for _, r := range c.rows {
		if r.state == "queued" || r.state == "running" {
			c.broken("V2", "%s is %s, attempt %d", r.id, r.state, r.attempt)
		}
	}
}

// oneResult is V3, and the first half of V4.
func (c *checker) oneResult() {
	for _, r := range c.rows {
		if n := len(c.results[r.id]); (r.state == "succeeded") != (n == 1) || n > 1 {
			c.broken("V3", "%s is %s with %d results", r.id, r.state, n)
		}
		for _, result := range c.results[r.id] {
			if result.attempt != r.attempt {
				c.broken("V4", "%s is at attempt %d, its result is of attempt %d", r.id, r.attempt, result.attempt)
			}
		}
	}
}

// blobsMatch is the other half of V4: what was uploaded is stored as it was.
func (c *checker) blobsMatch(ctx context.Context, blobs aviary.Blobs) error {
	sums := map[string]string{} // by key; empty is missing
	for _, r := range c.rows {
		if r.state == "expired" {
			continue
		}
		for _, key := range []string{r.blobKey, r.audioKey} {
			sum, known := sums[key]
			if !known {
				var err error
				if sum, err = hashOf(ctx, blobs, key); err != nil {
					return err
				}
				sums[key] = sum
			}
			if sum == "" {
				c.broken("V4", "%s has no blob %s", r.id, key)
			} else if key == r.blobKey && sum != r.sha {
				c.broken("V4", "the blob of %s has the hash %s, not %s", r.id, sum, r.sha)
			}
		}
	}
	return nil
}

// hashOf is a blob's SHA-256 in hex, and empty if there is no such blob.
func hashOf(ctx context.Context, blobs aviary.Blobs, key string) (string, error) {
	blob, err := blobs.Open(ctx, key)
	if aviary.CodeOf(err) == aviary.CodeNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer blob.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, io.NewSectionReader(blob, 0, blob.Size()))
	return hex.EncodeToString(hash.Sum(nil)), err
}

// oneEnd is V5: one attempt ends the job, it is the last one, and it ends it as the row says.
func (c *checker) oneEnd() {
	for _, r := range c.rows {
		attempts, ends := c.attempts[r.id], 0
		for i, a := range attempts {
			if a.ended.IsZero() {
				c.broken("V5", "attempt %d of %s is open, and the job is %s", a.attempt, r.id, r.state)
			}
			if a.outcome != "succeeded" && a.outcome != "failed" && a.outcome != "canceled" {
				continue
			}
			if ends++; i != len(attempts)-1 {
				c.broken("V5", "attempt %d of %s ended it (%s), and attempt %d followed", a.attempt, r.id, a.outcome, attempts[i+1].attempt)
			}
			if a.outcome != r.state {
				c.broken("V5", "%s is %s, and its attempt %d says %s", r.id, r.state, a.attempt, a.outcome)
			}
		}
		if ends > 1 {
			c.broken("V5", "%s was ended %d times", r.id, ends)
		}
		if r.state == "succeeded" && ends == 0 {
			c.broken("V5", "%s succeeded in no attempt", r.id)
		}
		if len(attempts) > 0 && attempts[len(attempts)-1].attempt != r.attempt {
			c.broken("V5", "%s is at attempt %d, the last that is recorded is %d", r.id, r.attempt, attempts[len(attempts)-1].attempt)
		}
	}
}

// noOverlap is V6, by the store and by the lock that the engines take.
func (c *checker) noOverlap(events []engineEvent, node func(string) string) {
	devices := map[string][]attemptRow{}
	for _, list := range c.attempts {
		for _, a := range list {
			device := node(a.worker) + " " + a.device
			devices[device] = append(devices[device], a)
		}
	}
	for device, list := range devices {
		slices.SortFunc(list, func(a, b attemptRow) int { return a.started.Compare(b.started) })
		for i := 1; i < len(list); i++ {
			a, b := list[i-1], list[i]
			if a.ended.IsZero() || b.started.Before(a.ended) {
				c.broken("V6", "on %s attempt %d of %s began at %v, and attempt %d of %s ended at %v", device, b.attempt, b.job, b.started, a.attempt, a.job, a.ended)
			}
		}
	}
	for _, e := range events {
		if e.Event == eventOverlap {
			c.broken("V6", "recording %d began on %s in process %d at %v while the device was in use", e.ID, e.Device, e.PID, e.time())
		}
	}
}

// rightEnd is V7.
func (c *checker) rightEnd(ledger []*entry) {
	canceled := map[string]bool{} // a request that was repeated is there twice
	for _, e := range ledger {
		canceled[e.job] = canceled[e.job] || e.canceled
	}
	for _, e := range ledger {
		r, ok := c.rows[e.job]
		if !ok {
			continue // V1
		}
		want := "succeeded"
		if e.mode != modeOK && e.mode != modeDeaf && e.always() {
			want = "failed"
		}
		switch {
		case r.state == "canceled" && canceled[e.job]:
		case r.state != want:
			c.broken("V7", "%v of %s is %s instead of %s: %s", e.script, r.id, r.state, want, r.problem)
		case want == "failed" && r.problem == "":
			c.broken("V7", "%v of %s failed without a reason", e.script, r.id)
		case want == "failed" && e.mode.deadly() && r.lost != aviary.MaxLost:
			c.broken("V7", "%v of %s was given up after %d lost attempts instead of %d", e.script, r.id, r.lost, aviary.MaxLost)
		}
		for _, result := range c.results[e.job] {
			if result.text != e.text() {
				c.broken("V7", "%v of %s has the result %q", e.script, r.id, result.text)
			}
		}
	}
}

func readRows(ctx context.Context, db *sql.DB) (map[string]row, error) {
	list, err := db.QueryContext(ctx, `SELECT id, state, COALESCE(problem, ''), blob_key, audio_key, audio_sha256, attempt, lost, fails FROM jobs`)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	rows := map[string]row{}
	for list.Next() {
		var r row
		if err := list.Scan(&r.id, &r.state, &r.problem, &r.blobKey, &r.audioKey, &r.sha, &r.attempt, &r.lost, &r.fails); err != nil {
			return nil, err
		}
		rows[r.id] = r
	}
	return rows, list.Err()
}

// readAttempts gives the attempts of each job in order.
func readAttempts(ctx context.Context, db *sql.DB) (map[string][]attemptRow, error) {
	list, err := db.QueryContext(ctx, `SELECT job_id, attempt, worker, device, outcome, started_at, ended_at FROM attempts ORDER BY job_id, attempt`)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	rows := map[string][]attemptRow{}
	for list.Next() {
		var a attemptRow
		var started int64
		var ended sql.NullInt64
		if err := list.Scan(&a.job, &a.attempt, &a.worker, &a.device, &a.outcome, &started, &ended); err != nil {
			return nil, err
		}
		if a.started = time.UnixMicro(started); ended.Valid {
			a.ended = time.UnixMicro(ended.Int64)
		}
		rows[a.job] = append(rows[a.job], a)
	}
	return rows, list.Err()
}

func readResults(ctx context.Context, db *sql.DB) (map[string][]result, error) {
	list, err := db.QueryContext(ctx, `SELECT job_id, attempt, body FROM transcripts`)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	rows := map[string][]result{}
	for list.Next() {
		var r result
		var body string
		if err := list.Scan(&r.job, &r.attempt, &body); err != nil {
			return nil, err
		}
		var t aviary.Transcript
		if err := json.Unmarshal([]byte(body), &t); err != nil {
			return nil, err
		}
		r.text = t.Text
		rows[r.job] = append(rows[r.job], r)
	}
	return rows, list.Err()
}

// openSQL opens a store's database beside the store.
func openSQL(t testing.TB, url string) *sql.DB {
	t.Helper()
	driver, source := "pgx", url
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, source = "sqlite", "file:"+path+"?_pragma=busy_timeout(30000)"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// world of a fleet.
func (f *fleet) world() world {
	return world{db: f.db, blobs: f.blobs, ledger: f.entries(), engines: engineEvents(f.t, f.engines()), node: f.node, recount: f.store.Recount,
		debris: func() ([]string, error) { return f.redis.debris(f.everything) }}
}

// check waits until all jobs have ended and Redis is clean, and holds the invariants to what is then stored. Where everything is to be
// seen, it waits for all that asynq recovers by itself.
func (f *fleet) check(within time.Duration) {
	f.t.Helper()
	f.settle(within)
	patience := 20 * time.Second
	if f.everything {
		patience = 150 * time.Second
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		left, err := f.redis.debris(f.everything)
		if err == nil && len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	f.verify()
}

func (f *fleet) verify() {
	f.t.Helper()
	found, err := verify(context.Background(), f.world())
	if err != nil {
		f.t.Fatalf("the invariants cannot be checked: %v", err)
	}
	for _, v := range found {
		f.t.Error(v)
	}
}
