package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/migrations"
	"github.com/aviary-asr/aviary/store/storetest"
)

// migrateTo brings an empty database to an old version of the schema, and runs statements there.
func migrateTo(t *testing.T, folder, url string, version int64, statements ...string) {
	t.Helper()
	ctx := t.Context()
	d := map[string]dialect{"sqlite": sqliteDialect, "postgres": postgresDialect}[folder]
	p, err := openForMigration(ctx, folder, url)
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Sub(migrations.Files, d.folder)
	if err != nil {
		t.Fatal(err)
	}
	up, err := goose.NewProvider(d.goose, p.DB, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err == nil {
		_, err = up.UpTo(ctx, version)
	}
	for _, statement := range statements {
		if err == nil {
			_, err = p.ExecContext(ctx, statement)
		}
	}
	if err := errors.Join(err, p.Close()); err != nil {
		t.Fatal(err)
	}
}

func openForMigration(ctx context.Context, folder, url string) (*pool, error) {
	same := func(query string) string { return query }
	if folder == "postgres" {
		p, err := parsePostgres(strings.TrimPrefix(url, "postgres:"), Options{}.withDefaults())
		if err != nil {
			return nil, err
		}
		return newPool(ctx, p.connect(2, nil), same)
	}
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		return nil, err
	}
	return newPool(ctx, db, same)
}

// jobsOfVersion2 are a job in each state as version 2 of the schema has them, with the attempts and transcripts that go with them.
var jobsOfVersion2 = []string{
	`INSERT INTO jobs (id, state, priority, max_attempts, created_at, name, attention_mode, labels, container, codec, sample_rate, channels,
		audio_us, audio_bytes, audio_sha256, blob_key, audio_key, attempt, generation, dispatched_at, not_before, lease_until, finished_at, attention)
	VALUES
	('waits',     'queued',    'bulk',        3, 1, '', '', NULL, 'flac', 'flac', 1, 1, 1000000, 1, '', 'waits', '',  0, 0, NULL, NULL, NULL, NULL, NULL),
	('waits_2',   'queued',    'bulk',        3, 2, '', '', NULL, 'flac', 'flac', 1, 1, 1000000, 1, '', 'waits_2', 'waits_2.flac',  0, 0, NULL, NULL, NULL, NULL, NULL),
	('delayed',   'queued',    'interactive', 3, 3, '', '', NULL, 'flac', 'flac', 1, 1, 2000000, 1, '', 'delayed', 'delayed.flac',  0, 0, NULL, 5, NULL, NULL, NULL),
	('out',       'queued',    'interactive', 3, 4, '', '', NULL, 'flac', 'flac', 1, 1, 3000000, 1, '', 'out', 'out.flac',  0, 1, 5, NULL, NULL, NULL, NULL),
	('runs',      'running',   'bulk',        3, 5, '', '', NULL, 'flac', 'flac', 1, 1, 4000000, 1, '', 'runs', 'runs.flac',  1, 1, NULL, NULL, 9, NULL, NULL),
	('succeeded', 'succeeded', 'bulk',        3, 6, '', '', NULL, 'flac', 'flac', 1, 1, 5000000, 1, '', 'succeeded', 'succeeded.flac',  1, 1, NULL, NULL, NULL, 7, '{"mode":"full"}'),
	('failed',    'failed',    'bulk',        3, 7, '', '', NULL, 'flac', 'flac', 1, 1, 6000000, 1, '', 'failed', 'failed.flac',  0, 0, NULL, NULL, NULL, 8, NULL),
	('canceled',  'canceled',  'bulk',        3, 8, '', '', NULL, 'flac', 'flac', 1, 1, 7000000, 1, '', 'canceled', 'canceled.flac',  0, 0, NULL, NULL, NULL, 9, NULL),
	('expired',   'expired',   'bulk',        3, 9, '', '', NULL, 'flac', 'flac', 1, 1, 8000000, 1, '', 'expired', 'expired.flac',  1, 1, NULL, NULL, NULL, 10, '{"mode":"full"}'),
	('expired_2', 'expired',   'bulk',        3, 9, '', '', NULL, 'flac', 'flac', 1, 1, 9000000, 1, '', 'expired_2', 'expired_2.flac',  0, 0, NULL, NULL, NULL, 11, NULL)`,
	`INSERT INTO attempts (job_id, attempt, worker, device, started_at) VALUES ('runs', 1, 'w', 'cpu', 6)`,
	`INSERT INTO attempts (job_id, attempt, worker, device, started_at, ended_at, outcome) VALUES ('succeeded', 1, 'w', 'cpu', 6, 7, 'succeeded')`,
	`INSERT INTO attempts (job_id, attempt, worker, device, started_at, ended_at, outcome) VALUES ('expired', 1, 'w', 'cpu', 6, 7, 'succeeded')`,
	`INSERT INTO transcripts (job_id, attempt, body, created_at) VALUES ('succeeded', 1, '{"text":"one two"}', 7)`,
}

// What an older version has accepted goes on under this one: all counters are right, jobs belong to the default tenant, and every state leads where it
// should.
func TestUpgradeFromVersion2(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, name string, b storetest.Backend) {
		ctx := t.Context()
		url := b.New(t)
		migrateTo(t, name, url, 2, jobsOfVersion2...)
		s := reopenTest(t, url, Options{volatile: true})

		if drift, err := s.Recount(ctx); err != nil || drift != nil {
			t.Errorf("drift after the migration: %q, %v", drift, err)
		}
		if done, err := s.Processed(ctx); err != nil || done != (aviary.Totals{Amount: aviary.Amount{Jobs: 2, Audio: 13 * time.Second}}) {
			t.Errorf("processed: %+v, %v; want what succeeded and what succeeded and has expired", done, err)
		}
		for _, c := range []struct {
			open int
			code aviary.Code
		}{{5, aviary.CodeQuotaExceeded}, {6, ""}} {
			_, err := s.CreateJob(ctx, aviary.Job{ID: "next"}, aviary.QueueLimits{TenantJobs: c.open})
			if aviary.CodeOf(err) != c.code {
				t.Errorf("with room for %d: %v", c.open, err)
			}
		}
		job, err := s.Job(ctx, "waits")
		if err != nil || job.Tenant != aviary.DefaultTenant || job.RequestKey != "" || job.AudioGone {
			t.Errorf("%+v, %v", job, err)
		}
		blobs := []string{"waits", "runs.flac", "succeeded", "expired", "expired_2.flac", "failed"}
		if list, err := s.Unwanted(ctx, blobs); err != nil || strings.Join(list, " ") != "expired expired_2.flac" {
			t.Errorf("unwanted: %q, %v", list, err)
		}
		list, err := s.Waiting(ctx, aviary.PriorityBulk, 9)
		if err != nil || len(list) != 2 || list[0].JobID != "waits" || list[1].JobID != "waits_2" || list[0].Tenant != aviary.DefaultTenant {
			t.Errorf("waiting: %+v, %v", list, err)
		}
		if list, err := s.Waiting(ctx, aviary.PriorityInteractive, 9); err != nil || len(list) != 2 || list[0].JobID != "delayed" {
			t.Errorf("waiting: %+v, %v", list, err)
		}
		if list, err := s.ReapOverdue(ctx, 0, 9); err != nil || len(list) != 0 {
			t.Errorf("overdue without a limit: %+v, %v", list, err)
		}
		if list, err := s.ReapLost(ctx, 9); err != nil || len(list) != 1 || list[0].JobID != "runs" {
			t.Errorf("lost: %+v, %v", list, err)
		}
		if list, err := s.DropAudio(ctx, 0, 9); err != nil || len(list) != 3 {
			t.Errorf("audio dropped: %+v, %v", list, err)
		}
		if list, err := s.ExpireOld(ctx, 0, 9); err != nil || len(list) != 3 || list[0].ID != "succeeded" {
			t.Errorf("expired: %+v, %v", list, err)
		}
		if n, err := s.DropTombstones(ctx, time.Hour, 9); err != nil || n != 2 {
			t.Errorf("old tombstones: %d, %v", n, err)
		}
		if drift, err := s.Recount(ctx); err != nil || drift != nil {
			t.Errorf("drift in the end: %q, %v", drift, err)
		}
	})
}
