//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// seedsVariable says over how many seeds the soak's time is spread.
const seedsVariable = "AVIARY_TEST_SEEDS"

// Test25_Soak mixes all faults at random, on SQLite and Postgres in turn, for as long as it is told to.
func Test25_Soak(t *testing.T) {
	if os.Getenv(chaosVariable) != "soak" {
		t.Skipf("%s=soak runs this, for %s (20m) over %s (4) seeds", chaosVariable, soakVariable, seedsVariable)
	}
	total, err := time.ParseDuration(or(os.Getenv(soakVariable), "20m"))
	if err != nil {
		t.Fatal(err)
	}
	seeds, err := strconv.Atoi(or(os.Getenv(seedsVariable), "4"))
	if err != nil || seeds < 1 {
		t.Fatalf("%s: %d, %v", seedsVariable, seeds, err)
	}
	for round := range seeds {
		var options []option
		name := "sqlite"
		if round%2 == 1 {
			name, options = "postgres", []option{onPostgres}
		}
		t.Run(fmt.Sprintf("%d %s", round, name), func(t *testing.T) { soak(t, chance(t, round), total/time.Duration(seeds), options...) })
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// soaker is one soak.
type soaker struct {
	*fleet
	apis, workers []*process
	wg            sync.WaitGroup
	faults        map[string]int
}

func soak(t *testing.T, r *rand.Rand, length time.Duration, options ...option) {
	f := newFleet(t, append(options, withFlags("--drain-timeout", "1"))...)
	s := &soaker{fleet: f, faults: map[string]int{}}
	s.apis = []*process{f.api("api0"), f.api("api1")}
	s.workers = f.workers(4)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	// Each has a source of its own, so that none depends on how fast another is.
	load, cancels := rand.New(rand.NewPCG(r.Uint64(), 1)), rand.New(rand.NewPCG(r.Uint64(), 2)) //nolint:gosec // repeatable
	s.wg.Go(func() { s.post(ctx, load) })
	s.wg.Go(func() { s.cancelSome(ctx, cancels) })
	s.disturb(ctx, r)
	s.wg.Wait()
	f.everything = true
	f.check(5 * time.Minute)
	t.Log(s.counts())
	t.Log(s.faults)
}

// post submits recordings of all kinds until ctx ends, each until it is accepted, some twice at once.
func (s *soaker) post(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		e := &entry{script: s.any(r), class: aviary.PriorityInteractive}
		e.key = "soak-" + strconv.Itoa(int(e.id))
		if r.IntN(3) == 0 {
			e.class = aviary.PriorityBulk
		}
		twice := r.IntN(10) == 0
		first := r.IntN(2)
		s.wg.Go(func() {
			// What was begun is finished: also a client that was told nothing has to learn what became of its request.
			patient, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			again := *e
			if err := s.persevere(patient, func() string { return s.apis[first].lastURL() }, e); err != nil {
				s.t.Error(err)
			}
			if twice {
				if err := s.persevere(patient, func() string { return s.apis[1-first].lastURL() }, &again); err != nil {
					s.t.Error(err)
				} else if again.job != e.job {
					s.t.Errorf("%v has the jobs %s and %s", e.script, e.job, again.job)
				}
			}
		})
		pause(ctx, between(r, 200*time.Millisecond, time.Second))
	}
}

// any is a recording of a mode that is drawn by weight.
func (s *soaker) any(r *rand.Rand) script {
	e := s.recording(modeOK, between(r, 0, 1500*time.Millisecond))
	switch n := r.IntN(1000); {
	case n < 80:
		e.mode, e.times = modeFlaky, int16(1+r.IntN(2))
	case n < 120:
		e.mode = modeBad
	case n < 140:
		e.mode = modeDeaf
	case n < 160:
		e.mode, e.times = []mode{modeKill, modeFault, modeExit, modeStray, modePanic, modeSick}[r.IntN(6)], 1
	case n < 168:
		e.mode = []mode{modeKill, modeFault, modeExit, modeStray}[r.IntN(4)]
	case n < 174:
		e.mode = modeHang
	}
	return e
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// cancelSome asks now and then for the end of a job, whatever it is doing.
func (s *soaker) cancelSome(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, between(r, 2*time.Second, 10*time.Second))
		if list := s.entries(); len(list) > 0 {
			e := list[len(list)-1-r.IntN(min(len(list), 10))]
			if a, err := s.cancel(s.apis[r.IntN(2)].lastURL(), e); err == nil && a.status >= 400 && a.status < 500 {
				s.t.Errorf("cancel %v: %d %s", e.script, a.status, a.body)
			}
		}
	}
}

// disturb does something bad each 1 to 5 s, until ctx ends, and then lets all go on.
func (s *soaker) disturb(ctx context.Context, r *rand.Rand) {
	kinds := []struct {
		name string
		do   func(ctx context.Context, r *rand.Rand)
	}{
		{"kill worker", func(_ context.Context, r *rand.Rand) { s.hit(r, syscall.SIGKILL) }},
		{"kill worker", func(_ context.Context, r *rand.Rand) { s.hit(r, syscall.SIGKILL) }},
		{"drain worker", func(_ context.Context, r *rand.Rand) { s.hit(r, syscall.SIGTERM) }},
		{"freeze worker", s.freeze},
		{"kill api", func(_ context.Context, r *rand.Rand) { s.apis[r.IntN(2)].crash() }},
		{"flush", func(context.Context, *rand.Rand) { s.raw("FLUSHALL") }},
		{"delete leases", func(context.Context, *rand.Rand) { s.raw("DEL", "asynq:{interactive}:lease", "asynq:{bulk}:lease") }},
		{"delete pending", func(context.Context, *rand.Rand) { s.raw("DEL", "asynq:{interactive}:pending", "asynq:{bulk}:pending") }},
		{"delete tasks", func(context.Context, *rand.Rand) { s.deleteTasks() }},
		{"cut clients", func(context.Context, *rand.Rand) { s.raw("CLIENT", "KILL", "TYPE", "normal") }},
		{"kill redis", func(ctx context.Context, r *rand.Rand) {
			s.redis.kill()
			pause(ctx, between(r, 0, 4*time.Second))
			s.redis.start()
		}},
		{"freeze redis", func(ctx context.Context, r *rand.Rand) {
			s.redis.freeze()
			pause(ctx, between(r, time.Second, 5*time.Second))
			s.redis.thaw()
		}},
	}
	for ctx.Err() == nil {
		pause(ctx, between(r, time.Second, 5*time.Second))
		kind := kinds[r.IntN(len(kinds))]
		s.faults[kind.name]++
		kind.do(ctx, r)
	}
	for _, w := range s.workers {
		w.signal(syscall.SIGCONT)
	}
}

// hit ends a worker. One whose recording has been begun twice already is spared: the third loss would be taken for the recording's fault.
func (s *soaker) hit(r *rand.Rand, signal syscall.Signal) {
	w := s.workers[r.IntN(len(s.workers))]
	if s.spared(w) {
		return
	}
	w.signal(signal)
}

func (s *soaker) spared(w *process) bool {
	times := map[int32]int{}
	var last engineEvent
	for _, e := range engineEvents(s.t, s.engines()) {
		if e.Event != eventEnd {
			times[e.ID]++
		}
		if strings.HasPrefix(e.Device, w.name+"-") {
			last = e
		}
	}
	return last.Event != eventEnd && times[last.ID] >= 2
}

// freeze stops a worker for longer than its lease, in most cases.
func (s *soaker) freeze(ctx context.Context, r *rand.Rand) {
	w := s.workers[r.IntN(len(s.workers))]
	if s.spared(w) {
		return
	}
	length := between(r, s.timing.Lease/2, 4*s.timing.Lease)
	w.signal(syscall.SIGSTOP)
	s.wg.Go(func() {
		pause(ctx, length)
		w.signal(syscall.SIGCONT)
	})
}

// raw runs a command, if the server answers.
func (s *soaker) raw(args ...any) { _ = s.redis.client.Do(context.Background(), args...).Err() }

func (s *soaker) deleteTasks() {
	keys, err := s.redis.client.Keys(context.Background(), "asynq:{*}:t:*").Result()
	for i, key := range keys {
		if err == nil && i%2 == 0 {
			s.raw("DEL", key)
		}
	}
}

// counts is what a soak came to, on one line.
func (s *soaker) counts() string {
	said := func(msg string) int { return s.all(func(l line) bool { return l.Msg == msg }) }
	stale := 0
	for _, p := range s.procs {
		stale += s.fenced(p)
	}
	state := func(name string) int { return s.count("SELECT count(*) FROM jobs WHERE state = '" + name + "'") }
	accepted := map[string]bool{}
	for _, e := range s.entries() {
		accepted[e.job] = true
	}
	waits := s.waits()
	at := func(part float64) time.Duration {
		if len(waits) == 0 {
			return 0
		}
		return waits[min(len(waits)-1, int(part*float64(len(waits))))].Round(100 * time.Millisecond)
	}
	return fmt.Sprintf("accepted %d, terminal %d, succeeded %d, failed %d, canceled %d, attempts %d, lost attempts %d, doubled %d, refused stale writes %d, "+
		"quarantined %d, wipes %d, redispatches %d, stale tickets dropped %d, accept to result p50 %v p99 %v max %v",
		len(accepted), s.count("SELECT count(*) FROM jobs WHERE state NOT IN ('queued', 'running')"), state("succeeded"), state("failed"), state("canceled"),
		s.count("SELECT count(*) FROM attempts"), s.count("SELECT count(*) FROM attempts WHERE outcome = 'lost'"),
		s.count("SELECT count(*) FROM (SELECT job_id FROM attempts WHERE outcome = 'succeeded' GROUP BY job_id HAVING count(*) > 1) AS doubled"),
		stale, s.count(fmt.Sprintf("SELECT count(*) FROM jobs WHERE state = 'failed' AND lost >= %d", aviary.MaxLost)),
		said("Redis was empty; its tickets are handed over again"), said("took back a stranded ticket"), said("dropped a stale ticket"), at(.5), at(.99), at(1))
}

// waits are the times from acceptance to result, sorted.
func (s *soaker) waits() (list []time.Duration) {
	rows, err := s.db.QueryContext(context.Background(), "SELECT finished_at - created_at FROM jobs WHERE state = 'succeeded'")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var us int64
		if err := rows.Scan(&us); err != nil {
			s.t.Fatal(err)
		}
		list = append(list, time.Duration(us)*time.Microsecond)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(list)
	return list
}
