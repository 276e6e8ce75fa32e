package store

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

const (
	byID    = "SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (id=?)"
	bySeq   = "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"
	byState = "SEARCH jobs USING COVERING INDEX jobs_state "
)

// Every statement that runs often, or over many rows, finds its rows by the index that is meant for it, and reads no table from end to end.
func TestPlans(t *testing.T) {
	t.Parallel()
	checkPlans(t, map[string]planned{
		"job":            {jobSQL, []string{byID}},
		"cancel queued":  {cancelQueuedSQL, []string{byID}},
		"cancel running": {requestCancelSQL, []string{byID}},
		"retry":          {retrySQL, []string{byID}},
		"expire":         {expireSQL, []string{byID}},
		"claim":          {claimSQL, []string{byID}},
		"heartbeat":      {heartbeatSQL, []string{byID}},
		"succeed":        {succeedSQL, []string{byID}},
		"cancel attempt": {cancelRunningSQL, []string{byID}},
		"requeue":        {requeueSQL, []string{byID}},
		"fail":           {failSQL, []string{byID}},
		"end attempt":    {endAttemptSQL, []string{"SEARCH attempts USING PRIMARY KEY (job_id=? AND attempt=?)"}},
		"attempts":       {attemptsSQL, []string{"SEARCH attempts USING PRIMARY KEY (job_id=?)"}},
		"transcript": {transcriptSQL, []string{"SEARCH j USING INDEX sqlite_autoindex_jobs_1 (id=?)",
			"SEARCH t USING INDEX sqlite_autoindex_transcripts_1 (job_id=?) LEFT-JOIN"}},
		"purge": {purgeSQL, []string{"SEARCH transcripts USING INDEX sqlite_autoindex_transcripts_1 (job_id=?)"}},

		"ripen": {ripenSQL, []string{bySeq, "LIST SUBQUERY", "MATERIALIZE ripe", "SEARCH jobs USING COVERING INDEX jobs_delayed (not_before<?)", "SCAN ripe"}},
		"ripe":  {ripeSQL, []string{"SEARCH jobs USING COVERING INDEX jobs_delayed (not_before<?)"}},
		"what waits": {sqliteDialect.candidatesSQL, []string{"CO-ROUTINE tenants", "SETUP", "SEARCH jobs USING INDEX jobs_ready (priority=?)",
			"RECURSIVE STEP", "SCAN t", "CORRELATED SCALAR SUBQUERY", "SEARCH jobs USING INDEX jobs_ready (priority=? AND tenant>?)",
			"SEARCH j USING INTEGER PRIMARY KEY (rowid=?)", "CORRELATED LIST SUBQUERY", "SEARCH jobs USING INDEX jobs_ready (priority=? AND tenant=?)",
			"USE TEMP B-TREE FOR ORDER BY"}},
		"dispatch":       {dispatchSQL(3), []string{bySeq, "LIST SUBQUERY", "MATERIALIZE picked", byID, "SCAN picked"}},
		"undispatch":     {undispatchSQL, []string{byID}},
		"undispatch all": {undispatchAllSQL, []string{"SEARCH jobs USING INDEX jobs_dispatched (dispatched_at>?)"}},
		"dispatched":     {dispatchedSQL, []string{"SEARCH jobs USING COVERING INDEX jobs_dispatched (dispatched_at>?)"}},
		"stranded":       {strandedSQL, []string{"SEARCH jobs USING INDEX jobs_dispatched (dispatched_at<?)"}},
		"lapsed leases":  {lapsedSQL, []string{"SEARCH jobs USING INDEX jobs_leased (lease_until<?)"}},
		"overdue":        {overdueSQL, []string{"SEARCH jobs USING INDEX jobs_overdue (deadline<?)"}},
		"held":           {heldSQL, []string{"SCAN jobs USING INDEX jobs_leased"}}, // all that run
		"recorded":       {recordedSQL, []string{"SEARCH transcripts USING INDEX sqlite_autoindex_transcripts_1 (job_id=?)"}},
		"losses":         {lostSQL, []string{byID}},
		"count losses":   {countLostSQL, []string{"SEARCH processed USING INTEGER PRIMARY KEY (rowid=?)", "SCALAR SUBQUERY", "SCAN processed"}}, // of one row

		"requested":       {requestedSQL, []string{"SEARCH jobs USING INDEX jobs_request (tenant=? AND request_key=?)"}},
		"request taken":   {requestTakenSQL, []string{"SEARCH jobs USING COVERING INDEX jobs_request (tenant=? AND request_key=?)"}},
		"open of tenant":  {tenantOpenSQL, []string{"SEARCH tenant_counters USING PRIMARY KEY (tenant=?)"}},
		"expire old":      {oldSQL, []string{"SEARCH jobs USING INDEX jobs_ended (finished_at<?)"}},
		"expire all":      {expireAllSQL(3), []string{byID}},
		"purge all":       {purgeAllSQL(3), []string{"SEARCH transcripts USING INDEX sqlite_autoindex_transcripts_1 (job_id=?)"}},
		"drop audio":      {dropAudioSQL, []string{bySeq, "LIST SUBQUERY", "MATERIALIZE old", "SEARCH jobs USING INDEX jobs_audio (finished_at<?)", "SCAN old"}},
		"drop tombstones": {buryingSQL, []string{bySeq, "LIST SUBQUERY", "MATERIALIZE old", "SEARCH jobs USING COVERING INDEX jobs_expired (expired_at<?)", "SCAN old"}},
		"wanted":          {wantedSQL(3), []string{byID}},
		"count rows":      {countRowsSQL, []string{"SCAN jobs USING COVERING INDEX jobs_state"}}, // each row, by the index
		"count tenants":   {countTenantRowsSQL, []string{"SEARCH jobs USING INDEX jobs_state (state=?)", "USE TEMP B-TREE FOR GROUP BY"}},

		"oldest waiting": {oldestSQL, []string{byState + "(state=? AND priority=?)"}},
		"head":           {headSQL, []string{"CO-ROUTINE head", byState + "(state=? AND priority=? AND created_at<?)", "SCAN head"}},
		"tail":           {tailSQL, []string{"CO-ROUTINE tail", byState + "(state=? AND priority=? AND created_at>?)", "SCAN tail"}},
	})
}

// Lists read an index in the order asked for, and sort no more than what they found: a page, or a page for each state and class.
func TestPagePlans(t *testing.T) {
	t.Parallel()
	const (
		sorted  = "USE TEMP B-TREE FOR ORDER BY"
		byLabel = "SEARCH l USING PRIMARY KEY (key=? AND value=? AND (created_at,seq)<(?,?))"
	)
	page := func(q aviary.JobQuery, from *position, want ...string) planned {
		q.Limit = 50
		query, _ := pageQuery(q, from)
		return planned{query, append([]string{bySeq, "LIST SUBQUERY"}, append(want, sorted)...)}
	}
	after := &position{1, 1}
	states := []aviary.State{"failed", "canceled"}
	checkPlans(t, map[string]planned{
		"first page":    page(aviary.JobQuery{}, nil, "SCAN jobs USING COVERING INDEX jobs_created"),
		"next page":     page(aviary.JobQuery{}, after, "SEARCH jobs USING COVERING INDEX jobs_created (created_at<?)"),
		"next page up":  page(aviary.JobQuery{Ascending: true}, after, "SEARCH jobs USING COVERING INDEX jobs_created (created_at>?)"),
		"created after": page(aviary.JobQuery{CreatedAfter: time.Unix(1, 0)}, nil, "SEARCH jobs USING COVERING INDEX jobs_created (created_at>?)"),
		"by states": page(aviary.JobQuery{States: states}, after, "CO-ROUTINE pages", "COMPOUND QUERY", "LEFT-MOST SUBQUERY", "CO-ROUTINE b",
			byState+"(state=? AND priority=? AND created_at<?)", "SCAN b", "UNION ALL", "SCAN pages"),
		"by label": page(aviary.JobQuery{Labels: map[string]string{"a": "b"}}, after, byLabel),
		"by labels and states": page(aviary.JobQuery{Labels: map[string]string{"a": "b", "c": "d"}, States: states}, after, byLabel,
			"SEARCH m EXISTS USING PRIMARY KEY (key=? AND value=? AND created_at=? AND seq=?)",
			"SEARCH j EXISTS USING INTEGER PRIMARY KEY (rowid=?)"),
	})
}

// planned is a statement and what SQLite should say of it: each line once, in the order of its first appearance.
type planned struct {
	query string
	want  []string
}

func checkPlans(t *testing.T, cases map[string]planned) {
	t.Helper()
	s := openTest(t, Options{volatile: true})
	for name, c := range cases {
		if plan := explain(t, s, c.query); !slices.Equal(plan, c.want) {
			t.Errorf("%s:%s\nis planned as\n%s\nwant\n%s", name, c.query, strings.Join(plan, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

var (
	argument = regexp.MustCompile(`\$\d+`)
	counting = regexp.MustCompile(`( |\bb)\d+$`) // the numbers of subqueries and of branches
)

// explain is what SQLite says it would do, each line once and without numbers.
func explain(t *testing.T, s *sqlStore, query string) []string {
	t.Helper()
	distinct := map[string]bool{}
	for _, name := range argument.FindAllString(query, -1) {
		distinct[name] = true
	}
	args := make([]any, len(distinct))
	for i := range args {
		args[i] = 1
	}
	lines, err := collect(t.Context(), s.read, func(row scanner) (string, error) {
		var id, parent, unused int
		var detail string
		err := row.Scan(&id, &parent, &unused, &detail)
		return strings.TrimSpace(counting.ReplaceAllString(detail, "$1")), err
	}, "EXPLAIN QUERY PLAN "+s.adapt(query), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	var plan []string
	for _, line := range lines {
		if !slices.Contains(plan, line) {
			plan = append(plan, line)
		}
	}
	return plan
}
