package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aviary-asr/aviary"
)

const mostPerPage = 200

// Jobs implements aviary.Store. Jobs are in the order in which they were created, ties in the order of their commits. Every
// combination reads an index in that order and stops after one page, with one exception: labels are followed along the first key in
// alphabetical order, and what other labels and states refuse is skipped one by one.
func (s *sqlStore) Jobs(ctx context.Context, q aviary.JobQuery) (aviary.JobPage, error) {
	const op = "store.jobs"
	if q.Limit < 1 || q.Limit > mostPerPage {
		return aviary.JobPage{}, aviary.Errorf(aviary.CodeOptionInvalid, op, "limit: %d is not from 1 to %d.", q.Limit, mostPerPage)
	}
	if !storable(q.After) {
		return aviary.JobPage{}, unknownCursor(op, q.After)
	}
	for key, value := range q.Labels {
		if !storable(key) || !storable(value) {
			return aviary.JobPage{}, nil // no job has such a label
		}
	}
	var jobs []aviary.Job
	err := s.look(ctx, op, func(ctx context.Context) error {
		from, err := s.position(ctx, op, q.After)
		if err != nil {
			return err
		}
		query, args := pageQuery(q, from)
		jobs, err = collect(ctx, s.read, scanJob, query, args...)
		return err
	})
	if err != nil {
		return aviary.JobPage{}, err
	}
	page := aviary.JobPage{Jobs: jobs}
	if len(jobs) > q.Limit {
		page.Jobs = jobs[:q.Limit]
		page.Next = page.Jobs[q.Limit-1].ID
	}
	return page, nil
}

// position is a job's place in the order of lists. It never changes, so it need not be read in the transaction that uses it.
type position struct{ created, seq int64 }

const positionSQL = `SELECT created_at, seq FROM jobs WHERE id = $1`

// position of the last job of the page before, or nil for the first page.
func (s *sqlStore) position(ctx context.Context, op, id string) (*position, error) {
	if id == "" {
		return nil, nil
	}
	var p position
	err := s.read.QueryRowContext(ctx, positionSQL, id).Scan(&p.created, &p.seq)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, unknownCursor(op, id)
	}
	return &p, err
}

func unknownCursor(op, id string) error {
	return aviary.Errorf(aviary.CodeOptionInvalid, op, "cursor: there is no job %q to go on from.", id)
}

// pageQuery lists one job more than asked for, which tells whether there is another page.
func pageQuery(q aviary.JobQuery, from *position) (query string, args []any) {
	b := &pageBuilder{q: q, from: from}
	inner := b.plain
	switch {
	case len(q.Labels) > 0:
		inner = b.byLabels
	case len(q.States) > 0:
		inner = b.byState
	}
	query = "SELECT " + jobColumns + " FROM jobs WHERE seq IN (" + inner() + ") ORDER BY " + b.order("")
	return query, b.args
}

// pageBuilder writes the query that finds the rows of a page, in numbers (seq), by an index.
type pageBuilder struct {
	q    aviary.JobQuery
	from *position
	args []any
}

func (b *pageBuilder) arg(v any) string {
	b.args = append(b.args, v)
	return fmt.Sprintf("$%d", len(b.args))
}

func (b *pageBuilder) order(table string) string {
	if b.q.Ascending {
		return fmt.Sprintf("%screated_at, %sseq", table, table)
	}
	return fmt.Sprintf("%screated_at DESC, %sseq DESC", table, table)
}

func (b *pageBuilder) page(table string) string {
	return " ORDER BY " + b.order(table) + " LIMIT " + b.arg(b.q.Limit+1)
}

// span is the part of the order that the page can come from, as a condition to be added to another.
func (b *pageBuilder) span(table string) string {
	var s strings.Builder
	if b.from != nil {
		sign := "<"
		if b.q.Ascending {
			sign = ">"
		}
		fmt.Fprintf(&s, " AND (%screated_at, %sseq) %s (%s, %s)", table, table, sign, b.arg(b.from.created), b.arg(b.from.seq))
	}
	if !b.q.CreatedAfter.IsZero() {
		fmt.Fprintf(&s, " AND %screated_at > %s", table, b.arg(stamp(b.q.CreatedAfter)))
	}
	return s.String()
}

func (b *pageBuilder) plain() string {
	return "SELECT seq FROM jobs INDEXED BY jobs_created WHERE 1 = 1" + b.span("") + b.page("")
}

// byState takes one page from the index for each state and class, and the first of all these: a list of states in one condition would sort
// every row of them.
func (b *pageBuilder) byState() string {
	states := slices.Compact(slices.Sorted(slices.Values(b.q.States)))
	var branches []string
	for _, state := range states {
		for _, class := range aviary.Priorities() {
			branches = append(branches, fmt.Sprintf("SELECT * FROM (SELECT created_at, seq FROM jobs INDEXED BY jobs_state WHERE state = %s AND priority = %s%s%s) AS b%d",
				b.arg(string(state)), b.arg(string(class)), b.span(""), b.page(""), len(branches)))
		}
	}
	return "SELECT seq FROM (" + strings.Join(branches, " UNION ALL ") + ") AS pages" + b.page("")
}

// byLabels walks along the first label and looks the others, and the state, up for each job.
func (b *pageBuilder) byLabels() string {
	var s strings.Builder
	keys := slices.Sorted(maps.Keys(b.q.Labels))
	fmt.Fprintf(&s, "SELECT l.seq FROM job_labels l WHERE l.key = %s AND l.value = %s", b.arg(keys[0]), b.arg(b.q.Labels[keys[0]]))
	for _, key := range keys[1:] {
		fmt.Fprintf(&s, " AND EXISTS (SELECT 1 FROM job_labels m WHERE m.key = %s AND m.value = %s AND m.created_at = l.created_at AND m.seq = l.seq)",
			b.arg(key), b.arg(b.q.Labels[key]))
	}
	if len(b.q.States) > 0 {
		list := make([]string, len(b.q.States))
		for i, state := range b.q.States {
			list[i] = b.arg(string(state))
		}
		fmt.Fprintf(&s, " AND EXISTS (SELECT 1 FROM jobs j WHERE j.seq = l.seq AND j.state IN (%s))", strings.Join(list, ", "))
	}
	return s.String() + b.span("l.") + b.page("l.")
}
