package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aviary-asr/aviary"
)

// What the counters should say, from the rows.
const (
	countRowsSQL = `
SELECT '' AS tenant, state, priority, count(*), CAST(sum(audio_us) AS BIGINT) FROM jobs INDEXED BY jobs_state WHERE 1 = 1 GROUP BY state, priority`
	countTenantRowsSQL = `
SELECT tenant, state, priority, count(*), CAST(sum(audio_us) AS BIGINT) FROM jobs INDEXED BY jobs_state
WHERE state IN ('queued', 'running') GROUP BY tenant, state, priority`
)

// What they say.
const (
	allCountersSQL = `
SELECT '' AS tenant, state, priority, CAST(sum(jobs) AS BIGINT), CAST(sum(audio_us) AS BIGINT) FROM counters GROUP BY state, priority`
	allTenantCountersSQL = `
SELECT tenant, state, priority, CAST(sum(jobs) AS BIGINT), CAST(sum(audio_us) AS BIGINT) FROM tenant_counters GROUP BY tenant, state, priority`
)

// How they are set right: $1 jobs and $2 audio are added, to the first shard.
const (
	correctSQL          = `UPDATE counters SET jobs = jobs + $1, audio_us = audio_us + $2 WHERE state = $3 AND priority = $4 AND shard = 0`
	correctProcessedSQL = `UPDATE processed SET jobs = jobs + $1, audio_us = audio_us + $2 WHERE shard = 0`

	// $1 tenant, $2 state, $3 class -> jobs and audio of each of its shards, which are gone.
	foldSQL = `DELETE FROM tenant_counters WHERE tenant = $1 AND state = $2 AND priority = $3 RETURNING jobs, audio_us`
	// $1 tenant, $2 state, $3 class, $4 jobs, $5 audio.
	unfoldedSQL = `
INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us) VALUES ($1, $2, $3, 0, $4, $5)
ON CONFLICT (tenant, state, priority, shard) DO UPDATE
SET jobs = tenant_counters.jobs + excluded.jobs, audio_us = tenant_counters.audio_us + excluded.audio_us`
)

const recountsSQL = `SELECT n FROM recounts`

// $1 the number of recounts that was read.
const recountedSQL = `UPDATE recounts SET n = n + 1 WHERE n = $1`

// tally is what is counted by itself: all jobs of a state and class, or those of a tenant, if it names one. All that have succeeded go without a class.
type tally struct {
	tenant string
	state  aviary.State
	class  aviary.Priority
}

func (t tally) String() string {
	switch {
	case t.class == "":
		return "processed"
	case t.tenant != "":
		return fmt.Sprintf("%s %s of tenant %q", t.state, t.class, t.tenant)
	}
	return fmt.Sprintf("%s %s", t.state, t.class)
}

type tallies map[tally]aviary.Amount

// Recount implements aviary.Housekeeping. The counters add and subtract, and so does what sets them right: the difference that was found in one
// snapshot is added, whatever has been counted since. Two that recount at once would add it twice; the number of recounts keeps the second from that,
// who starts again.
func (s *sqlStore) Recount(ctx context.Context) (drift []string, err error) {
	const op = "store.recount"
	for {
		var seen int64
		var rows, counted tallies
		err := s.view(ctx, op, func(ctx context.Context, tx *txn) (err error) {
			seen, rows, counted, err = s.takeStock(ctx, tx)
			return err
		})
		if err != nil {
			return nil, err
		}
		off, idle := compare(rows, counted)
		if len(off)+len(idle) == 0 {
			return nil, nil
		}
		overtaken := false
		err = s.update(ctx, op, func(ctx context.Context, tx *txn, _ time.Time) error {
			ok, err := changed(ctx, tx, recountedSQL, seen)
			if overtaken = err == nil && !ok; err != nil || overtaken {
				return err
			}
			return correct(ctx, tx, off, idle)
		})
		if err != nil {
			return nil, err
		}
		if overtaken {
			continue
		}
		for _, t := range slices.SortedFunc(maps.Keys(off), tally.compare) {
			drift = append(drift, fmt.Sprintf("%s: %d jobs of %v were counted, there are %d of %v.", t,
				counted[t].Jobs, counted[t].Audio, rows[t].Jobs, rows[t].Audio))
		}
		return drift, nil
	}
}

func (t tally) compare(o tally) int {
	return cmp.Or(cmp.Compare(t.tenant, o.tenant), cmp.Compare(t.state, o.state), cmp.Compare(t.class, o.class))
}

// takeStock counts rows and reads counters.
func (s *sqlStore) takeStock(ctx context.Context, tx *txn) (seen int64, rows, counted tallies, err error) {
	if err := tx.QueryRowContext(ctx, recountsSQL).Scan(&seen); err != nil {
		return 0, nil, nil, err
	}
	rows, counted = tallies{}, tallies{}
	for _, c := range []struct {
		into  tallies
		query string
	}{{rows, countRowsSQL}, {rows, countTenantRowsSQL}, {counted, allCountersSQL}, {counted, allTenantCountersSQL}} {
		_, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
			var t tally
			var a aviary.Amount
			err = row.Scan(&t.tenant, &t.state, &t.class, &a.Jobs, fromMicros{&a.Audio})
			c.into[t] = a
			return none, err
		}, c.query)
		if err != nil {
			return 0, nil, nil, err
		}
	}
	// What has been processed cannot be counted: rows have gone. But there is no less of it than what succeeded and has not gone. What was lost is left alone.
	var done aviary.Totals
	var least aviary.Amount
	for _, class := range aviary.Priorities() {
		a := rows[tally{state: aviary.StateSucceeded, class: class}]
		least = aviary.Amount{Jobs: least.Jobs + a.Jobs, Audio: least.Audio + a.Audio}
	}
	err = tx.QueryRowContext(ctx, processedSQL).Scan(&done.Jobs, fromMicros{&done.Audio}, &done.Lost, &done.Quarantined)
	all := tally{state: aviary.StateSucceeded}
	counted[all], rows[all] = done.Amount, aviary.Amount{Jobs: max(done.Jobs, least.Jobs), Audio: max(done.Audio, least.Audio)}
	return seen, rows, counted, err
}

// compare gives what has to be added to the counters that are off, and the tenants' counters that have come to nothing and are still there.
func compare(rows, counted tallies) (off tallies, idle []tally) {
	off = tallies{}
	for t, is := range rows {
		if was := counted[t]; was != is {
			off[t] = aviary.Amount{Jobs: is.Jobs - was.Jobs, Audio: is.Audio - was.Audio}
		}
	}
	for t, was := range counted {
		if _, ok := rows[t]; ok {
			continue
		}
		if was != (aviary.Amount{}) {
			off[t] = aviary.Amount{Jobs: -was.Jobs, Audio: -was.Audio}
		} else if t.tenant != "" {
			idle = append(idle, t)
		}
	}
	return off, idle
}

// correct adds to counters what they are off by. It also folds the shards of tenants: those that it corrects, and those that have nothing open.
func correct(ctx context.Context, tx *txn, off tallies, idle []tally) error {
	for _, t := range slices.SortedFunc(maps.Keys(off), tally.compare) {
		jobs, audio := off[t].Jobs, off[t].Audio.Microseconds()
		var err error
		switch {
		case t.tenant != "":
			err = fold(ctx, tx, t, jobs, audio)
		case t.class == "":
			_, err = tx.ExecContext(ctx, correctProcessedSQL, jobs, audio)
		default:
			_, err = tx.ExecContext(ctx, correctSQL, jobs, audio, string(t.state), string(t.class))
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(idle, tally.compare)
	for _, t := range idle {
		if err := fold(ctx, tx, t, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// fold makes one shard of all that a tenant's counter has, and adds to it.
func fold(ctx context.Context, tx *txn, t tally, jobs int, audio int64) error {
	_, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
		var shardJobs int
		var shardAudio int64
		err = row.Scan(&shardJobs, &shardAudio)
		jobs, audio = jobs+shardJobs, audio+shardAudio
		return none, err
	}, foldSQL, t.tenant, string(t.state), string(t.class))
	if err != nil || jobs == 0 && audio == 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, unfoldedSQL, t.tenant, string(t.state), string(t.class), jobs, audio)
	return err
}
