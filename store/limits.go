package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

// turns are the limits before which an accept takes its turn, alone, instead of going beside others.
type turns struct{ all, tenant bool }

// crowded says that so little room is left within limits that accepts have to take turns: next is how to come again.
type crowded struct{ next turns }

func (crowded) Error() string { return "too close to the limits for several accepts at once" }

// -> jobs that wait, their audio, and how many transactions can be under way at once: here it does not matter.
const waitingSQL = `SELECT CAST(sum(jobs) AS BIGINT), CAST(sum(audio_us) AS BIGINT), 1 FROM counters WHERE state = 'queued'`

// $1 tenant -> what it has open, as above.
const tenantOpenSQL = `
SELECT CAST(coalesce(sum(jobs), 0) AS BIGINT), CAST(coalesce(sum(audio_us), 0) AS BIGINT), 1 FROM tenant_counters WHERE tenant = $1`

// $1 tenant, $2 request key -> one row if there is a job with it.
const requestTakenSQL = `SELECT 1 FROM jobs WHERE tenant = $1 AND request_key = $2`

// admit refuses a job whose request key is taken, or that would make more wait than limits allow, or its tenant have more open.
//
// Where several transactions write at once, none sees what the others are about to add. To take turns at every accept would cost a commit's time for
// each. So accepts go side by side as long as there is room for as many more as the server can have under way, and alone when there is not:
// then it returns crowded, and has to be called in a new transaction, alone. Either way the limits hold exactly. (An accept beside others may
// have waited for one that went alone, and not see it. That one was under way too, and is among those that there was room for.) Both kinds of limits
// work like this, each with a lock of its own; that of all comes first, so that nobody waits in a circle.
func (s *sqlStore) admit(ctx context.Context, tx *txn, op string, job aviary.Job, limits aviary.QueueLimits, alone turns) error {
	every := aviary.QueueLimits{Jobs: limits.Jobs, Audio: limits.Audio}
	own := aviary.QueueLimits{Jobs: limits.TenantJobs, Audio: limits.TenantAudio}
	var waiting, open load
	var err error
	if every != (aviary.QueueLimits{}) {
		if waiting, err = s.weigh(ctx, tx, waitingSQL, s.accepting, alone.all); err != nil {
			return err
		}
	}
	if own != (aviary.QueueLimits{}) {
		if open, err = s.weigh(ctx, tx, tenantOpenSQL, s.acceptingOf, alone.tenant, job.Tenant); err != nil {
			return err
		}
	}
	if job.RequestKey != "" { // after the locks: who waited for the one that took the key shall hear of that, and not of limits
		var one int
		if err := tx.QueryRowContext(ctx, requestTakenSQL, job.Tenant, job.RequestKey).Scan(&one); err == nil {
			return aviary.ErrRequestKeyTaken
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	full := aviary.Error{Code: aviary.CodeQueueFull, Op: op, Detail: "The queue takes no more for now."}
	if err := waiting.refuse(full, job.Audio.Duration, every); err != nil {
		return err
	}
	full = aviary.Error{Code: aviary.CodeQuotaExceeded, Op: op, Detail: "You have as much waiting and running as you may."}
	if err := open.refuse(full, job.Audio.Duration, own); err != nil {
		return err
	}
	next := alone
	next.all = next.all || s.accepting != nil && !roomFor(waiting.atOnce, waiting.Amount, job.Audio.Duration, every)
	next.tenant = next.tenant || s.acceptingOf != nil && !roomFor(open.atOnce, open.Amount, job.Audio.Duration, own)
	if next != alone {
		return crowded{next}
	}
	return nil
}

// load is what counts against limits, and how many transactions may be about to add to it.
type load struct {
	aviary.Amount
	atOnce int64
}

// weigh reads a load, under the lock that goes with its limits.
func (s *sqlStore) weigh(ctx context.Context, tx *txn, query string, locks *acceptSQL, alone bool, args ...any) (l load, err error) {
	switch {
	case locks != nil && alone: // in a statement of its own, so that the next one sees what was committed before
		if _, err := tx.ExecContext(ctx, locks.alone, args...); err != nil {
			return l, err
		}
	case locks != nil:
		query = locks.beside
	}
	return readLoad(tx.QueryRowContext(ctx, query, args...))
}

func readLoad(row scanner) (l load, err error) {
	err = row.Scan(&l.Jobs, fromMicros{&l.Audio}, &l.atOnce)
	return l, err
}

// refuse returns full, with numbers, if one job more would exceed limits.
func (l load) refuse(full aviary.Error, audio time.Duration, limits aviary.QueueLimits) error {
	if limits.Jobs > 0 && l.Jobs+1 > limits.Jobs {
		full.Limit, full.Actual, full.Unit = float64(limits.Jobs), float64(l.Jobs+1), "jobs"
		return &full
	}
	if limits.Audio > 0 && l.Audio > limits.Audio-audio { // not the sum, which could overflow
		full.Limit, full.Actual, full.Unit = limits.Audio.Seconds(), l.Audio.Seconds()+audio.Seconds(), "seconds"
		return &full
	}
	return nil
}

// roomFor says whether a job may be accepted beside up to atOnce-1 others that asked the same and are not among those that wait. For jobs that is
// room for atOnce. Audio keeps an eighth of its limit in reserve, of which each of those at once may use its share.
func roomFor(atOnce int64, waiting aviary.Amount, audio time.Duration, limits aviary.QueueLimits) bool {
	if limits.Jobs > 0 && int64(waiting.Jobs)+atOnce > int64(limits.Jobs) {
		return false
	}
	reserve := limits.Audio / 8
	return limits.Audio <= 0 || audio <= reserve/time.Duration(max(atOnce, 1)) && waiting.Audio <= limits.Audio-reserve
}

// longestKey bounds tenants, request keys, and keys and values of labels, in bytes: an index has to hold two of them.
const longestKey = 1000

// checkTexts refuses texts of a user that not every database can keep. Whatever else a job has is not a user's.
func checkTexts(op string, job aviary.Job) error {
	if !storable(job.Options.Name) {
		return aviary.Errorf(aviary.CodeOptionInvalid, op, "name: it is not UTF-8, or has a NUL in it.")
	}
	for what, text := range map[string]string{"tenant": job.Tenant, "idempotency key": job.RequestKey} {
		if !storable(text) || len(text) > longestKey {
			return aviary.Errorf(aviary.CodeOptionInvalid, op, "%s: it is not UTF-8, has a NUL in it, or is longer than %d bytes.", what, longestKey)
		}
	}
	for key, value := range job.Options.Labels {
		switch {
		case !storable(key) || !storable(value):
			return aviary.Errorf(aviary.CodeOptionInvalid, op, "labels: %q is not UTF-8, or has a NUL in it.", key)
		case len(key) > longestKey || len(value) > longestKey:
			return aviary.Errorf(aviary.CodeOptionInvalid, op, "labels: a key or value is longer than %d bytes.", longestKey)
		}
	}
	return nil
}

// storable says whether a column can hold a text: Postgres takes valid UTF-8 without NUL.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
