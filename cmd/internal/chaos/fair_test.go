//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// Test24_Fairness has one tenant with a great many bulk jobs, a third with some, and one that submits an interactive job now and then.
func Test24_Fairness(t *testing.T) {
	t.Parallel()
	bulk, interactive, kills := 800, 4, 0
	if rounds() > 1 {
		bulk, interactive, kills = 100_000, 30, 2
	}
	f := newFleet(t)
	base := f.api("api").listens()
	workers := f.workers(4)
	f.flood("big", 10*time.Millisecond, bulk)
	f.flood("small", 10*time.Millisecond, bulk/4)
	var waits []time.Duration
	for i := range interactive {
		e := f.submit(base, f.recording(modeOK, 0))
		at := f.onDevice(e.script, 1, patience)
		job := f.state(e.job, patience, func(j aviary.Job) bool { return j.State.Final() })
		waits = append(waits, at[0].Sub(job.CreatedAt))
		if i == interactive/2 {
			for _, w := range workers[:kills] {
				w.crash()
			}
		}
		if n := len(f.redis.keys("asynq:{*}:t:*")); n > 200 {
			t.Errorf("%d tasks are in Redis", n)
		}
		time.Sleep(500 * time.Millisecond) // the next comes later
	}
	slices.Sort(waits)
	if worst := waits[len(waits)-1-len(waits)/30]; worst > slowdown*(slice+500*time.Millisecond) { // of 30, one may have met the kill
		t.Errorf("interactive jobs wait up to %v behind %d bulk jobs", worst, bulk)
	}
	if used := f.redisBytes(); used > 20<<20 {
		t.Errorf("Redis uses %d bytes", used)
	}
	done := map[string]int{}
	for _, tenant := range []string{"big", "small"} {
		done[tenant] = f.count("SELECT count(*) FROM jobs WHERE state = 'succeeded' AND tenant = '" + tenant + "'")
	}
	// While both wait they get the same; at the end of a short run the one may have run out.
	if left := f.count("SELECT count(*) FROM jobs WHERE state = 'queued' AND tenant = 'small'"); left > 0 {
		if a, b := done["big"], done["small"]; a+b > 100 && (float64(a) > 1.2*float64(b) || float64(b) > 1.2*float64(a)) {
			t.Errorf("%d jobs of one tenant were done and %d of the other", a, b)
		}
	}
	t.Logf("interactive waits: %v; done: %v", waits, done)
	if rounds() == 1 {
		f.check(120 * time.Second)
	}
}

// flood puts bulk jobs of a tenant into the store (SQLite), all with one recording: 100,000 uploads would be a test of uploads.
func (f *fleet) flood(tenant string, work time.Duration, n int) {
	f.t.Helper()
	model := &entry{script: f.recording(modeOK, work), class: aviary.PriorityBulk}
	f.mustPost(f.procs["api"].listens(), model)
	const same = `max_attempts, created_at, name, attention_mode, container, codec, sample_rate, channels, audio_us, audio_bytes, audio_sha256, blob_key, audio_key`
	_, err := f.db.ExecContext(f.t.Context(), `
		WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)
		INSERT INTO jobs (id, tenant, state, priority, `+same+`)
		SELECT 'job_' || $2 || n, $2, 'queued', 'bulk', `+same+` FROM jobs CROSS JOIN numbers WHERE id = $3`, n, tenant, model.job)
	if err != nil {
		f.t.Fatal(err)
	}
}

// redisBytes is the memory that Redis uses.
func (f *fleet) redisBytes() (n int64) {
	f.t.Helper()
	for text := range strings.Lines(fmt.Sprint(f.redis.do("INFO", "memory"))) {
		if v, ok := strings.CutPrefix(text, "used_memory:"); ok {
			n, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return n
}
