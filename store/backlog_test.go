package store

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// fill puts n waiting bulk jobs into the store by one statement, of 1 s of audio each: job_1, job_2, ...
func fill(t testing.TB, s *sqlStore, n int) {
	t.Helper()
	_, err := s.write.ExecContext(t.Context(), `
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)
INSERT INTO jobs (id, state, priority, max_attempts, created_at, name, attention_mode, container, codec, sample_rate, channels,
	audio_us, audio_bytes, audio_sha256, blob_key)
SELECT 'job_' || n, 'queued', 'bulk', 3, CAST($2 AS BIGINT) + n, '', '', 'flac', 'flac', 16000, 1, 1000000, 1, '', 'job_' || n FROM numbers`,
		n, time.Now().UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
}

// The place in a long queue is exact near both ends and close between them, also when jobs have left holes and an old job has come back.
func TestQueueAheadOfMany(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{volatile: true})
	const n = 2400
	fill(t, s, n)
	// A third of the jobs have gone, evenly, and one that came long before the others waits again.
	for _, change := range []string{
		`UPDATE jobs SET state = 'canceled', finished_at = 1 WHERE seq % 3 = 0`,
		`UPDATE jobs SET created_at = 1 WHERE seq = 1`,
	} {
		if _, err := s.write.ExecContext(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	waiting := n - n/3
	ahead := 0 // of the job at hand
	for seq := 1; seq <= n; seq++ {
		if seq%3 == 0 {
			continue
		}
		edge := ahead < countedAhead || ahead >= waiting-countedAhead
		if edge && seq%50 == 1 || seq%100 == 1 || ahead == waiting-1 {
			job := aviary.Job{ID: fmt.Sprint("job_", seq)}
			jobs, audio, err := s.QueueAhead(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			tolerance := 0.0
			if !edge {
				tolerance = 0.01 * float64(waiting)
			}
			if math.Abs(float64(jobs-ahead)) > tolerance || math.Abs(audio.Seconds()-float64(ahead)) > tolerance+1 {
				t.Errorf("%s: %d jobs and %v ahead, want %d of 1 s", job.ID, jobs, audio, ahead)
			}
		}
		ahead++
	}
}

func TestDurationsSaturate(t *testing.T) {
	t.Parallel()
	for us, want := range map[int64]time.Duration{
		0: 0, 1: time.Microsecond, -1: -time.Microsecond,
		math.MaxInt64: math.MaxInt64 / 1000 * 1000, math.MaxInt64 / 1000: math.MaxInt64 / 1000 * 1000,
	} {
		if got := duration(us); got != want {
			t.Errorf("duration(%d) = %d, want %d", us, got, want)
		}
	}
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 499: 0, 500: 1, 22675 * time.Nanosecond: 23, time.Hour: 3_600_000_000, math.MaxInt64: math.MaxInt64 / 1000,
	} {
		if got := micros(d); got != want {
			t.Errorf("micros(%d) = %d, want %d", d, got, want)
		}
	}
}
