package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// Every statement that runs often, or over many rows, finds its rows by the index that is meant for it, and reads no table from end to end,
// whatever Postgres believes about the tables: nothing yet, the truth, or what was true while everything waited.
func TestPostgresPlans(t *testing.T) {
	t.Parallel()
	mixed := []string{
		// 8,600 have succeeded, 400 run, 20 have been handed over, 80 are delayed, 2,900 wait.
		`INSERT INTO jobs (id, state, priority, max_attempts, created_at, name, attention_mode, container, codec, sample_rate, channels,
			audio_us, audio_bytes, audio_sha256, blob_key, finished_at, lease_until, dispatched_at, not_before)
		SELECT 'job_' || n, CASE WHEN n <= 8600 THEN 'succeeded' WHEN n <= 9000 THEN 'running' ELSE 'queued' END, 'bulk', 3, n, '', '', '', '', 1, 1,
			1000000, 1, '', '', CASE WHEN n <= 8600 THEN 1 END, CASE WHEN n BETWEEN 8601 AND 9000 THEN n END,
			CASE WHEN n BETWEEN 9001 AND 9020 THEN n END, CASE WHEN n BETWEEN 9021 AND 9100 THEN n END
		FROM generate_series(1, 12000) AS n`,
		`INSERT INTO attempts (job_id, attempt, worker, device, started_at, ended_at, outcome)
			SELECT id, 1, '', '', 1, 1, 'succeeded' FROM jobs WHERE seq <= 9000`,
		`INSERT INTO transcripts (job_id, attempt, body, created_at) SELECT id, 1, repeat('x', 100), 1 FROM jobs WHERE seq <= 9000`,
		`INSERT INTO job_labels (key, value, created_at, seq) SELECT 'a', 'v' || seq % 3, created_at, seq FROM jobs`,
	}
	const analyze = `VACUUM ANALYZE jobs, attempts, transcripts, job_labels`
	for name, statements := range map[string][]string{
		"no statistics":    mixed,
		"statistics":       append(slices.Clone(mixed), analyze),
		"everything waits": append(slices.Clone(mixed), `UPDATE jobs SET state = 'queued', finished_at = NULL, lease_until = NULL, dispatched_at = NULL, not_before = NULL`, analyze),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openPostgresTest(t, Options{})
			ctx := t.Context()
			conn, err := s.write.Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if name == "everything waits" { // 12,000 updates of one row in one transaction are not what counters are for
				statements = append([]string{`ALTER TABLE jobs DISABLE TRIGGER jobs_count_update`}, statements...)
			}
			for _, statement := range statements {
				if _, err := conn.ExecContext(ctx, statement); err != nil {
					t.Fatal(err)
				}
			}
			for name, c := range postgresPlans() {
				plan := explainPostgresPlan(t, conn, c.query)
				used := indexesIn(plan)
				if !slices.Equal(used, c.want) || strings.Contains(plan, "Seq Scan on") {
					t.Errorf("%s:%s\nuses %q, want %q:\n%s", name, c.query, used, c.want, plan)
				}
			}
		})
	}
}

// postgresPlans are statements, and the indexes that each uses.
func postgresPlans() map[string]planned {
	all := jobPlans()
	maps.Copy(all, queuePlans())
	maps.Copy(all, listPlans())
	return all
}

func jobPlans() map[string]planned {
	byID := []string{"jobs_id"}
	return map[string]planned{
		"hold":           {postgresDialect.holdSQL, byID},
		"job":            {jobSQL, byID},
		"cancel queued":  {cancelQueuedSQL, byID},
		"cancel running": {requestCancelSQL, byID},
		"retry":          {retrySQL, byID},
		"expire":         {expireSQL, byID},
		"claim":          {claimSQL, byID},
		"heartbeat":      {heartbeatSQL, byID},
		"succeed":        {succeedSQL, byID},
		"cancel attempt": {cancelRunningSQL, byID},
		"requeue":        {requeueSQL, byID},
		"fail":           {failSQL, byID},
		"end attempt":    {endAttemptSQL, []string{"attempts_open"}},
		"attempts":       {attemptsSQL, []string{"attempts_pkey"}},
		"transcript":     {transcriptSQL, []string{"jobs_id", "transcripts_pkey"}},
		"purge":          {purgeSQL, []string{"transcripts_pkey"}},
	}
}

func queuePlans() map[string]planned {
	byID, bySeq := []string{"jobs_id"}, "jobs_pkey"
	return map[string]planned{
		"ripen":          {ripenSQL, []string{"jobs_delayed", bySeq}},
		"ripe":           {ripeSQL, []string{"jobs_delayed"}},
		"what waits":     {postgresDialect.candidatesSQL, []string{"jobs_ready"}},
		"dispatch":       {dispatchSQL(3), []string{"jobs_id", bySeq}},
		"undispatch":     {undispatchSQL, byID},
		"undispatch all": {undispatchAllSQL, []string{"jobs_dispatched"}},
		"dispatched":     {dispatchedSQL, []string{"jobs_dispatched"}},
		"stranded":       {strandedSQL, []string{"jobs_dispatched"}},
		"lapsed leases":  {lapsedSQL, []string{"jobs_leased"}},
		"overdue":        {overdueSQL, []string{"jobs_overdue"}},
		"held":           {heldSQL, []string{"jobs_leased"}},

		"recorded":        {recordedSQL, []string{"transcripts_pkey"}},
		"losses":          {lostSQL, byID},
		"requested":       {requestedSQL, []string{"jobs_request"}},
		"request taken":   {requestTakenSQL, []string{"jobs_request"}},
		"open of tenant":  {tenantOpenSQL, []string{"tenant_counters_pkey"}},
		"open, beside":    {tenantBesideSQL, []string{"tenant_counters_pkey"}},
		"expire old":      {oldSQL, []string{"jobs_ended"}},
		"expire all":      {expireAllSQL(3), byID},
		"purge all":       {purgeAllSQL(3), []string{"transcripts_pkey"}},
		"drop audio":      {dropAudioSQL, []string{"jobs_audio", bySeq}},
		"drop tombstones": {buryingSQL, []string{"jobs_expired", bySeq}},
		"wanted":          {wantedSQL(3), byID},

		"oldest waiting": {oldestSQL, []string{"jobs_state"}},
		"place":          {placeSQL, byID},
		"head":           {headSQL, []string{"jobs_state"}},
		"tail":           {tailSQL, []string{"jobs_state"}},
	}
}

func listPlans() map[string]planned {
	const bySeq = "jobs_pkey"
	page := func(q aviary.JobQuery, from *position, want ...string) planned {
		q.Limit = 5
		query, _ := pageQuery(q, from)
		return planned{query, slices.Sorted(slices.Values(append(want, bySeq)))}
	}
	after := &position{1, 1}
	states := []aviary.State{"failed", "canceled"}
	return map[string]planned{
		"first page":    page(aviary.JobQuery{}, nil, "jobs_created"),
		"next page":     page(aviary.JobQuery{}, after, "jobs_created"),
		"next page up":  page(aviary.JobQuery{Ascending: true}, after, "jobs_created"),
		"created after": page(aviary.JobQuery{CreatedAfter: time.Unix(1, 0)}, nil, "jobs_created"),
		"by states":     page(aviary.JobQuery{States: states}, after, "jobs_state"),
		"by label":      page(aviary.JobQuery{Labels: map[string]string{"a": "b"}}, after, "job_labels_pkey"),
		"by labels and states": page(aviary.JobQuery{Labels: map[string]string{"a": "b", "c": "d"}, States: states}, after,
			"job_labels_pkey"),
	}
}

// explainPostgresPlan is what Postgres says it would do with a statement, with likely arguments.
func explainPostgresPlan(t *testing.T, conn *sql.Conn, query string) string {
	t.Helper()
	ctx := t.Context()
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
	exec("PREPARE planned AS " + postgresDialect.adapt(query))
	defer conn.ExecContext(context.WithoutCancel(ctx), "DEALLOCATE planned")
	var types string
	if err := conn.QueryRowContext(ctx, "SELECT array_to_string(parameter_types, ' ') FROM pg_prepared_statements WHERE name = 'planned'").Scan(&types); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, kind := range strings.Fields(types) {
		args = append(args, map[string]string{"text": "'bulk'", "bigint": "5", "integer": "5"}[kind])
	}
	if strings.Contains(query, "lease_until <= $3") {
		args[2] = fmt.Sprint(anyLease) // as of a worker
	}
	if query == expireSQL {
		args[2] = "'succeeded'"
	}
	execute := "EXECUTE planned"
	if len(args) > 0 {
		execute = fmt.Sprintf("EXECUTE planned(%s)", strings.Join(args, ", "))
	}
	rows, err := conn.QueryContext(ctx, "EXPLAIN (COSTS OFF) "+execute)
	if err != nil {
		t.Fatalf("%v\n%s", err, execute)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

var indexInPlan = regexp.MustCompile(`Index (?:Only )?Scan(?: Backward)?(?: using| on) (\w+)`)

// indexesIn are the indexes that a plan uses, sorted, each once.
func indexesIn(plan string) (names []string) {
	for _, m := range indexInPlan.FindAllStringSubmatch(plan, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}
