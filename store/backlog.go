package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/aviary-asr/aviary"
)

// The casts keep Postgres from adding up in decimals.
const countersSQL = `
SELECT state, priority, CAST(sum(jobs) AS BIGINT), CAST(sum(audio_us) AS BIGINT) FROM counters GROUP BY state, priority`

// $1 class -> when the oldest waiting job was created, NULL if none waits.
const oldestSQL = `SELECT min(created_at) FROM jobs INDEXED BY jobs_state WHERE state = 'queued' AND priority = $1`

// Backlog implements aviary.Store: a dozen counters, and the first entry of an index for each class.
func (s *sqlStore) Backlog(ctx context.Context) (aviary.Backlog, error) {
	const op = "store.backlog"
	var b aviary.Backlog
	err := s.view(ctx, op, func(ctx context.Context, tx *txn) error {
		b = aviary.Backlog{Classes: map[aviary.Priority]aviary.ClassBacklog{}, States: map[aviary.State]int{}}
		counts, err := readCounters(ctx, tx)
		if err != nil {
			return err
		}
		for _, c := range counts {
			b.States[c.state] += c.Jobs
			if c.state == aviary.StateRunning {
				b.Running.Jobs += c.Jobs
				b.Running.Audio += c.Audio
			}
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		for _, class := range aviary.Priorities() {
			var oldest time.Time
			if err := tx.QueryRowContext(ctx, oldestSQL, string(class)).Scan(fromStamp{&oldest}); err != nil {
				return err
			}
			cb := aviary.ClassBacklog{Amount: counts.amount(aviary.StateQueued, class)}
			if !oldest.IsZero() {
				cb.Oldest = max(now.Sub(oldest), 0)
			}
			b.Classes[class] = cb
			b.Oldest = max(b.Oldest, cb.Oldest)
		}
		return nil
	})
	if err != nil {
		return aviary.Backlog{}, err
	}
	return b, nil
}

// counter is one row of the table of that name.
type counter struct {
	state aviary.State
	class aviary.Priority
	aviary.Amount
}

type counters []counter

func readCounters(ctx context.Context, q querier) (counters, error) {
	return collect(ctx, q, func(row scanner) (counter, error) {
		var c counter
		err := row.Scan(&c.state, &c.class, &c.Jobs, fromMicros{&c.Audio})
		return c, err
	}, countersSQL)
}

func (list counters) amount(state aviary.State, class aviary.Priority) aviary.Amount {
	for _, c := range list {
		if c.state == state && c.class == class {
			return c.Amount
		}
	}
	return aviary.Amount{}
}

// TenantOpen implements aviary.Store.
func (s *sqlStore) TenantOpen(ctx context.Context, tenant string) (aviary.Amount, error) {
	const op = "store.tenant_open"
	if !storable(tenant) { // there is no such tenant, and not every database can be asked for it
		return aviary.Amount{}, nil
	}
	var open load
	err := s.look(ctx, op, func(ctx context.Context) (err error) {
		open, err = readLoad(s.read.QueryRowContext(ctx, tenantOpenSQL, tenant))
		return err
	})
	return open.Amount, err
}

const processedSQL = `
SELECT CAST(sum(jobs) AS BIGINT), CAST(sum(audio_us) AS BIGINT), CAST(sum(lost) AS BIGINT), CAST(sum(quarantined) AS BIGINT) FROM processed`

// Processed implements aviary.Store. Jobs that have expired, or are no more, still count.
func (s *sqlStore) Processed(ctx context.Context) (aviary.Totals, error) {
	const op = "store.processed"
	var done aviary.Totals
	err := s.look(ctx, op, func(ctx context.Context) error {
		return s.read.QueryRowContext(ctx, processedSQL).Scan(&done.Jobs, fromMicros{&done.Audio}, &done.Lost, &done.Quarantined)
	})
	return done, err
}

// countedAhead is how many jobs QueueAhead counts from either end of a class. Between the ends it estimates.
const countedAhead = 500

// $1 id -> where a waiting job stands.
const placeSQL = `SELECT created_at, seq, audio_us, priority FROM jobs WHERE id = $1 AND state = 'queued'`

// $1 class, $2 and $3 a position, $4 limit -> how many waiting jobs come before it, their audio, and the seq of the last one counted, from the
// head of the queue.
const headSQL = `
SELECT count(*), CAST(coalesce(sum(audio_us), 0) AS BIGINT), coalesce(max(seq), 0) FROM (
	SELECT seq, audio_us FROM jobs INDEXED BY jobs_state WHERE state = 'queued' AND priority = $1 AND (created_at, seq) < ($2, $3)
	ORDER BY created_at, seq LIMIT $4) AS head`

// The same from the tail of the queue: how many come after the position.
const tailSQL = `
SELECT count(*), CAST(coalesce(sum(audio_us), 0) AS BIGINT), coalesce(min(seq), 0) FROM (
	SELECT seq, audio_us FROM jobs INDEXED BY jobs_state WHERE state = 'queued' AND priority = $1 AND (created_at, seq) > ($2, $3)
	ORDER BY created_at DESC, seq DESC LIMIT $4) AS tail`

// QueueAhead implements aviary.Store: all waiting jobs of the classes served before, and those of the same class that were created before. It
// is exact for the first and the last 500 jobs of a class. Between them it assumes that the waiting jobs are spread evenly over the
// numbers of arrival, and that their audio is of even length. A job that does not wait has nothing ahead.
func (s *sqlStore) QueueAhead(ctx context.Context, job aviary.Job) (jobs int, audio time.Duration, err error) {
	const op = "store.queue_ahead"
	var ahead aviary.Amount
	err = s.view(ctx, op, func(ctx context.Context, tx *txn) error {
		ahead = aviary.Amount{}
		var at position
		var own time.Duration
		var its aviary.Priority
		row := tx.QueryRowContext(ctx, placeSQL, job.ID)
		if err := row.Scan(&at.created, &at.seq, fromMicros{&own}, &its); errors.Is(err, sql.ErrNoRows) {
			return missed(ctx, tx, op, job.ID, nil)
		} else if err != nil {
			return err
		}
		counts, err := readCounters(ctx, tx)
		if err != nil {
			return err
		}
		for _, class := range aviary.Priorities() {
			waiting := counts.amount(aviary.StateQueued, class)
			if class == its {
				waiting.Jobs--
				waiting.Audio -= own
				if waiting, err = aheadInClass(ctx, tx, class, at, waiting); err != nil {
					return err
				}
			}
			ahead.Jobs += waiting.Jobs
			ahead.Audio += waiting.Audio
			if class == its {
				break
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	return ahead.Jobs, ahead.Audio, nil
}

// aheadInClass is the part of others, the other waiting jobs of a class, that lies before a position.
func aheadInClass(ctx context.Context, tx *txn, class aviary.Priority, at position, others aviary.Amount) (aviary.Amount, error) {
	var head, tail aviary.Amount
	var headSeq, tailSeq int64
	row := tx.QueryRowContext(ctx, headSQL, string(class), at.created, at.seq, countedAhead)
	if err := row.Scan(&head.Jobs, fromMicros{&head.Audio}, &headSeq); err != nil || head.Jobs < countedAhead {
		return head, err
	}
	row = tx.QueryRowContext(ctx, tailSQL, string(class), at.created, at.seq, countedAhead)
	if err := row.Scan(&tail.Jobs, fromMicros{&tail.Audio}, &tailSeq); err != nil {
		return aviary.Amount{}, err
	}
	between := aviary.Amount{Jobs: others.Jobs - head.Jobs - tail.Jobs, Audio: others.Audio - head.Audio - tail.Audio}
	part := 1.0
	if tail.Jobs == countedAhead && tailSeq > headSeq {
		part = min(max(float64(at.seq-headSeq)/float64(tailSeq-headSeq), 0), 1)
	}
	head.Jobs += int(part * float64(between.Jobs))
	head.Audio += time.Duration(part * float64(between.Audio))
	return head, nil
}
