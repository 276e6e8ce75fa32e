package store

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

// errCrowded says that so little room is left within the limits that accepts have to take turns.
var errCrowded = errors.New("too close to the limits for several accepts at once")

// -> jobs that wait, their audio, and how many transactions can be under way at once: here it does not matter.
const waitingSQL = `SELECT CAST(sum(jobs) AS BIGINT), CAST(sum(audio_us) AS BIGINT), 1 FROM counters WHERE state = 'queued'`

// checkLimits refuses a job that would make the queue longer than limits allow.
//
// Where several transactions write at once, none sees what the others are about to add. To take turns at every accept would cost a commit's time for
// each. So accepts go side by side as long as there is room for as many more as the server can have under way, and alone when there is not:
// then it returns errCrowded, and has to be called in a new transaction, alone. Either way the limits hold exactly. (An accept beside others may
// have waited for one that went alone, and not see it. That one was under way too, and is among those that there was room for.)
func (s *sqlStore) checkLimits(ctx context.Context, tx *txn, op string, audio time.Duration, limits aviary.QueueLimits, alone bool) error {
	if limits == (aviary.QueueLimits{}) {
		return nil
	}
	query := waitingSQL
	switch {
	case s.accepting != nil && alone: // in a statement of its own, so that the next one sees what was committed before
		if _, err := tx.ExecContext(ctx, s.accepting.alone); err != nil {
			return err
		}
	case s.accepting != nil:
		query = s.accepting.beside
	}
	var waiting aviary.Amount
	var atOnce int64
	if err := tx.QueryRowContext(ctx, query).Scan(&waiting.Jobs, fromMicros{&waiting.Audio}, &atOnce); err != nil {
		return err
	}
	full := func(limit, actual float64, unit string) error {
		return &aviary.Error{Code: aviary.CodeQueueFull, Op: op, Detail: "The queue takes no more for now.",
			Limit: limit, Actual: actual, Unit: unit}
	}
	if limits.Jobs > 0 && waiting.Jobs+1 > limits.Jobs {
		return full(float64(limits.Jobs), float64(waiting.Jobs+1), "jobs")
	}
	if limits.Audio > 0 && waiting.Audio > limits.Audio-audio { // not the sum, which could overflow
		return full(limits.Audio.Seconds(), waiting.Audio.Seconds()+audio.Seconds(), "seconds")
	}
	if s.accepting != nil && !alone && !roomFor(atOnce, waiting, audio, limits) {
		return errCrowded
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

// longestLabel bounds keys and values of labels, in bytes: an index has to hold both.
const longestLabel = 1000

// checkTexts refuses texts of a user that not every database can keep. Whatever else a job has is not a user's.
func checkTexts(op string, o aviary.Options) error {
	if !storable(o.Name) {
		return aviary.Errorf(aviary.CodeOptionInvalid, op, "name: it is not UTF-8, or has a NUL in it.")
	}
	for key, value := range o.Labels {
		switch {
		case !storable(key) || !storable(value):
			return aviary.Errorf(aviary.CodeOptionInvalid, op, "labels: %q is not UTF-8, or has a NUL in it.", key)
		case len(key) > longestLabel || len(value) > longestLabel:
			return aviary.Errorf(aviary.CodeOptionInvalid, op, "labels: a key or value is longer than %d bytes.", longestLabel)
		}
	}
	return nil
}

// storable says whether a column can hold a text: Postgres takes valid UTF-8 without NUL.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
