package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/aviary-asr/aviary"
)

// jobColumns are what scanJob reads, in its order.
const jobColumns = `id, tenant, request_key, request_hash, audio_gone, state, phase, name, attention_mode, priority, labels,
	container, codec, sample_rate, channels, audio_us, audio_bytes, audio_sha256, blob_key, audio_key, audio_warnings, channel, version, progress_us,
	attempt, generation, fails, lost, max_attempts, worker, device, cancel_requested, attention, problem,
	created_at, started_at, finished_at, not_before, lease_until`

// scanner is a *sql.Row or *sql.Rows.
type scanner interface{ Scan(into ...any) error }

func scanJob(row scanner) (aviary.Job, error) {
	var j aviary.Job
	var requestKey sql.NullString
	err := row.Scan(&j.ID, &j.Tenant, &requestKey, &j.RequestHash, &j.AudioGone, &j.State, &j.Phase, &j.Options.Name, &j.Options.Attention, &j.Options.Priority, fromJSON{&j.Options.Labels},
		&j.Audio.Container, &j.Audio.Codec, &j.Audio.SampleRate, &j.Audio.Channels, fromMicros{&j.Audio.Duration},
		&j.Audio.Bytes, &j.Audio.SHA256, &j.BlobKey, &j.AudioKey,
		fromJSON{&j.Audio.Warnings}, &j.Options.Channel, &j.Version, fromMicros{&j.Progress},
		&j.Attempt, &j.Generation, &j.Fails, &j.Lost, &j.MaxAttempts, &j.Worker, &j.Device, &j.CancelRequested,
		fromJSON{&j.Attention}, fromJSON{&j.Problem},
		fromStamp{&j.CreatedAt}, fromStamp{&j.StartedAt}, fromStamp{&j.FinishedAt}, fromStamp{&j.NotBefore}, fromStamp{&j.LeaseUntil})
	if err != nil {
		return aviary.Job{}, err
	}
	j.RequestKey = requestKey.String
	return j, nil
}

// stamp is a time as a column keeps it: microseconds since 1970, NULL for the zero time.
func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// fromStamp reads what stamp wrote.
type fromStamp struct{ into *time.Time }

func (f fromStamp) Scan(column any) error {
	switch us := column.(type) {
	case nil:
		*f.into = time.Time{}
	case int64:
		*f.into = time.UnixMicro(us).UTC()
	default:
		return fmt.Errorf("a time is kept as %T", column)
	}
	return nil
}

// micros is a duration as a column keeps it, rounded to the microsecond; a negative one is taken for none.
func micros(d time.Duration) int64 {
	return max(d.Round(time.Microsecond).Microseconds(), 0)
}

// fromMicros reads what micros wrote, or a sum of such. A sum beyond the 292 years of a time.Duration gives the longest one.
type fromMicros struct{ into *time.Duration }

func (f fromMicros) Scan(column any) error {
	us, ok := column.(int64)
	if !ok {
		return fmt.Errorf("a duration is kept as %T", column)
	}
	*f.into = duration(us)
	return nil
}

func duration(us int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(max(min(us, most), -most)) * time.Microsecond
}

// toJSON is v as a column keeps it.
func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// fromJSON reads what toJSON wrote; NULL leaves the value alone.
type fromJSON struct{ into any }

func (f fromJSON) Scan(column any) error {
	switch text := column.(type) {
	case nil:
		return nil
	case string:
		return json.Unmarshal([]byte(text), f.into)
	case []byte:
		return json.Unmarshal(text, f.into)
	}
	return fmt.Errorf("JSON is kept as %T", column)
}

// problemColumn is a problem as a column keeps it, NULL for none. A problem is made of strings and finite numbers; should one not be finite
// all the same, the numbers are dropped and the rest is kept.
func problemColumn(p *aviary.Problem) any {
	if p == nil {
		return nil
	}
	text, err := toJSON(p)
	if err != nil {
		bare := *p
		bare.Limit, bare.Actual, bare.Unit = 0, 0, ""
		text, _ = toJSON(bare)
	}
	return text
}
