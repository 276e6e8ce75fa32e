package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
)

// endedSQL is what the indexes of retention hold.
const endedSQL = `state IN ('succeeded', 'failed', 'canceled')`

// $1 the time before which they ended, $2 limit -> jobs, the oldest first.
const oldSQL = `
SELECT ` + jobColumns + ` FROM jobs INDEXED BY jobs_ended
WHERE ` + endedSQL + ` AND finished_at <= $1 ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED`

// $1 the time before which they ended, $2 limit -> jobs, in any order.
const dropAudioSQL = `
WITH old AS MATERIALIZED (
	SELECT seq FROM jobs INDEXED BY jobs_audio
	WHERE ` + endedSQL + ` AND audio_gone = 0 AND finished_at <= $1 ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET audio_gone = 1, version = version + 1 WHERE seq IN (SELECT seq FROM old)
RETURNING ` + jobColumns

// $1 the time before which they expired, $2 limit -> ids. Attempts, transcripts and labels go with their job.
const buryingSQL = `
WITH old AS MATERIALIZED (
	SELECT seq FROM jobs INDEXED BY jobs_expired
	WHERE state = 'expired' AND expired_at <= $1 ORDER BY expired_at LIMIT $2 FOR UPDATE SKIP LOCKED)
DELETE FROM jobs WHERE seq IN (SELECT seq FROM old)
RETURNING id`

// expireAllSQL is the statement for n ids: $1 now, $2 and on the ids.
func expireAllSQL(n int) string {
	return toTombstone + `WHERE id IN (` + parameters(2, n) + `) AND state <> 'expired'`
}

// purgeAllSQL is the statement for n ids.
func purgeAllSQL(n int) string {
	return `DELETE FROM transcripts WHERE job_id IN (` + parameters(1, n) + `)`
}

// mostForgotten is how many jobs one transaction forgets: it holds up accepts for no longer than some of them take.
const mostForgotten = 100

// inPages has page forget up to limit jobs, in transactions of mostForgotten at most, until it finds fewer. With an error comes what was
// forgotten before it.
func inPages[T any](ctx context.Context, s *sqlStore, op string, limit int,
	page func(ctx context.Context, tx *txn, now time.Time, limit int) ([]T, error),
) (all []T, err error) {
	for len(all) < limit {
		var list []T
		want := min(limit-len(all), mostForgotten)
		err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) (err error) {
			list, err = page(ctx, tx, now, want)
			return err
		})
		if err != nil {
			return all, err
		}
		if all = append(all, list...); len(list) < want {
			break
		}
	}
	return all, nil
}

// ExpireOld implements aviary.Housekeeping, in the order in which they ended. With an error come the jobs that expired before it.
func (s *sqlStore) ExpireOld(ctx context.Context, age time.Duration, limit int) ([]aviary.Job, error) {
	return inPages(ctx, s, "store.expire_old", limit, func(ctx context.Context, tx *txn, now time.Time, limit int) ([]aviary.Job, error) {
		list, err := collect(ctx, tx, scanJob, oldSQL, stamp(now.Add(-age)), limit)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		ids := make([]any, len(list)) // of rows that are held: what was read is still so
		for i, job := range list {
			ids[i] = job.ID
		}
		if _, err := tx.ExecContext(ctx, expireAllSQL(len(ids)), append([]any{stamp(now)}, ids...)...); err != nil {
			return nil, err
		}
		_, err = tx.ExecContext(ctx, purgeAllSQL(len(ids)), ids...)
		return list, err
	})
}

// DropAudio implements aviary.Housekeeping. With an error come the jobs whose audio was marked before it.
func (s *sqlStore) DropAudio(ctx context.Context, age time.Duration, limit int) ([]aviary.Job, error) {
	return inPages(ctx, s, "store.drop_audio", limit, func(ctx context.Context, tx *txn, now time.Time, limit int) ([]aviary.Job, error) {
		return collect(ctx, tx, scanJob, dropAudioSQL, stamp(now.Add(-age)), limit)
	})
}

// DropTombstones implements aviary.Housekeeping. With an error comes how many went before it.
func (s *sqlStore) DropTombstones(ctx context.Context, age time.Duration, limit int) (int, error) {
	list, err := inPages(ctx, s, "store.drop_tombstones", limit, func(ctx context.Context, tx *txn, now time.Time, limit int) ([]string, error) {
		return collect(ctx, tx, func(row scanner) (id string, err error) {
			err = row.Scan(&id)
			return id, err
		}, buryingSQL, stamp(now.Add(-age)), limit)
	})
	return len(list), err
}

// A blob's key tells whose it is: it is the id of its job, alone or with a dot and more behind it. So blobs find their jobs by the index of ids, in all
// versions of the schema, and no key needs an index. Here and in checkKeys is the only place that knows.
func jobOfKey(key string) string {
	id, _, _ := strings.Cut(key, ".")
	return id
}

// checkKeys refuses a job whose blobs would not be found to be its own: they would be taken for garbage.
func checkKeys(op string, job aviary.Job) error {
	for _, key := range []string{job.BlobKey, job.AudioKey} {
		if key != "" && jobOfKey(key) != job.ID {
			return aviary.Errorf(aviary.CodeInternal, op, "The blob key %q does not begin with the job's id, %q.", key, job.ID)
		}
	}
	return nil
}

// wantedSQL is the statement for n ids -> the keys of those jobs' blobs, if they are to be kept.
func wantedSQL(n int) string {
	return `SELECT blob_key, audio_key FROM jobs WHERE id IN (` + parameters(1, n) + `) AND state <> 'expired' AND audio_gone = 0`
}

// Unwanted implements aviary.Housekeeping.
func (s *sqlStore) Unwanted(ctx context.Context, keys []string) ([]string, error) {
	const op = "store.unwanted"
	wanted := map[string]bool{}
	for page := range slices.Chunk(keys, mostPerStatement) {
		var ids []string
		for _, key := range page {
			if id := jobOfKey(key); storable(id) { // otherwise no job has it
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			continue
		}
		err := s.look(ctx, op, func(ctx context.Context) error {
			_, err := collect(ctx, s.read, func(row scanner) (none struct{}, err error) {
				var blob, audio string
				err = row.Scan(&blob, &audio)
				wanted[blob], wanted[audio] = true, true
				return none, err
			}, wantedSQL(len(ids)), anys(ids)...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var unwanted []string
	for _, key := range keys {
		if key == "" || !wanted[key] {
			unwanted = append(unwanted, key)
		}
	}
	return unwanted, nil
}
