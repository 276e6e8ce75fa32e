package bench

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/queue"
	"github.com/aviary-asr/aviary/store"
	"github.com/aviary-asr/aviary/store/storetest/pgtest"
)

// startRedis starts a redis-server on a Unix socket in a directory of its own, and returns the socket. It ends with the benchmark.
func startRedis(b *testing.B, fsync string) (socket string) {
	b.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("AVIARY_TEST_REQUIRE_REDIS") == "1" {
			b.Fatal(err)
		}
		b.Skip("no redis-server is installed")
	}
	dir, err := os.MkdirTemp("", "aviary-bench-") //nolint:usetesting // b.TempDir is longer than a socket's path may be
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	server := exec.Command(binary, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", fsync,
		"--maxmemory-policy", "noeviction")
	out, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "ready to accept connections") {
				close(ready)
			}
		}
	}()
	b.Cleanup(func() {
		_ = server.Process.Kill()
		<-ended
		_ = server.Wait()
	})
	select {
	case <-ready:
	case <-ended:
		b.Fatal("redis-server ended at once")
	case <-time.After(10 * time.Second):
		b.Fatal("redis-server did not start")
	}
	return socket
}

func plainRedis(socket string) asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Network: "unix", Addr: socket, PoolSize: 32}
}

// database is a kind of database.
type database struct {
	name  string
	fresh func(b *testing.B) (url string)
	// raw opens it without the store.
	raw     func(url string) (*sql.DB, error)
	analyze string
}

var databases = []database{
	{"sqlite", func(b *testing.B) string { return "sqlite:" + filepath.Join(b.TempDir(), "bench.db") }, openSQLite, "ANALYZE"},
	{"postgres", func(b *testing.B) string { return pgtest.Schema(b) }, openPostgres, "VACUUM ANALYZE jobs"},
}

// openSQLite opens a file as a careful user would: with the durability of the store's, and one connection, as there is one writer.
func openSQLite(url string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+
		"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func openPostgres(url string) (*sql.DB, error) {
	db, err := sql.Open("pgx", url)
	if err == nil {
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
	}
	return db, err
}

// openRaw opens a database without the store.
func (d database) openRaw(b *testing.B, url string) *sql.DB {
	b.Helper()
	db, err := d.raw(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// openStore opens a store on a fresh database, with so many bulk jobs of one tenant waiting in it.
func (d database) openStore(b *testing.B, waiting int) aviary.Store {
	b.Helper()
	url := d.fresh(b)
	s, err := store.Open(b.Context(), url, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	if waiting > 0 {
		db := d.openRaw(b, url)
		_, err1 := db.ExecContext(b.Context(), fillSQL, waiting, time.Now().UnixMicro())
		_, err2 := db.ExecContext(b.Context(), d.analyze) // as the database does by itself, but later
		if err := errors.Join(err1, err2, db.Close()); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// $1 how many, $2 time of creation in microseconds.
const fillSQL = `
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)
INSERT INTO jobs (id, state, priority, tenant, max_attempts, created_at, name, attention_mode, container, codec, sample_rate, channels,
	audio_us, audio_bytes, audio_sha256, blob_key, audio_key)
SELECT 'job_' || n, 'queued', 'bulk', 'archive', 3, CAST($2 AS BIGINT) + n, 'talk.flac', 'auto', 'flac', 'flac', 16000, 1,
	60000000, 1000000, '', 'job_' || n, 'job_' || n || '.flac'
FROM numbers`

// newJob is a job as an upload of a minute makes it.
func newJob(id string, class aviary.Priority) aviary.Job {
	return aviary.Job{
		ID: id, Tenant: "newsroom", BlobKey: id, AudioKey: id + ".flac", MaxAttempts: 3,
		Options: aviary.Options{Name: "talk.flac", Attention: aviary.AttentionAuto, Priority: class},
		Audio: aviary.Audio{Container: "flac", Codec: "flac", SampleRate: 16000, Channels: 1, Duration: time.Minute, Bytes: 1_000_000,
			SHA256: strings.Repeat("0", 64)},
	}
}

// limits are far away, and have to be checked.
var limits = aviary.QueueLimits{Jobs: 1 << 40, Audio: 1 << 62, TenantJobs: 1 << 40, TenantAudio: 1 << 62}

// transcript is what each job results in.
var transcript = aviary.Transcript{Text: "one two three", Segments: []aviary.Segment{{Text: "one two three", Words: []aviary.Word{{Word: "one"}, {Word: "two"}, {Word: "three"}}}}}

// payload is that of a plain task: 300 bytes that say what to do.
func payload(id string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"name":"talk.flac","attention":"auto","pad":%q}`, id, strings.Repeat("x", 240))
}

// noDevice is a device whose runner never asks it for anything.
type noDevice string

func (d noDevice) Name() string { return string(d) }

func (noDevice) Transcribe(context.Context, aviary.PCM, aviary.AttentionMode, func(time.Duration)) (aviary.Transcript, error) {
	return aviary.Transcript{}, errors.New("no device here")
}

// idler is a runner whose jobs are claimed and finished, and nothing in between but a pause.
type idler struct {
	store    aviary.Store
	work     time.Duration        // of bulk jobs
	started  func(job aviary.Job) // may be nil
	finished func(err error)      // of every claimed job; may be nil
}

func (r *idler) Run(ctx context.Context, t aviary.Ticket, d aviary.Device) error {
	job, err := r.store.StartAttempt(ctx, t, aviary.Claim{Worker: "bench", Node: "bench", Device: d.Name(), Lease: time.Minute, Limit: time.Minute})
	if errors.Is(err, aviary.ErrNotClaimable) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.started != nil {
		r.started(job)
	}
	if job.Options.Priority == aviary.PriorityBulk {
		time.Sleep(r.work)
	}
	err = r.store.FinishAttempt(ctx, aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt}, transcript)
	if r.finished != nil {
		r.finished(err)
	}
	return nil
}

// startAviary runs all that moves jobs as production does: dispatcher, sweeper and a worker of so many devices (or none). It ends with the benchmark.
func startAviary(b *testing.B, socket string, r *idler, lanes int) *queue.Dispatcher {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	conn, err := queue.Dial(b.Context(), "unix://"+socket, log)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	cfg := queue.DefaultConfig()
	dispatcher, err1 := queue.NewDispatcher(conn, r.store, cfg, log)
	sweeper, err2 := queue.NewSweeper(conn, r.store, dispatcher, cfg, log)
	if err := errors.Join(err1, err2); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var running sync.WaitGroup
	running.Go(func() { dispatcher.Run(ctx) })
	running.Go(func() { sweeper.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if lanes == 0 {
		return dispatcher
	}
	devices := make([]aviary.Device, lanes)
	for i := range devices {
		devices[i] = noDevice(fmt.Sprint("device", i))
	}
	worker, err := queue.NewWorker(conn, r, devices, dispatcher, cfg, log)
	if err != nil {
		b.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := worker.Stop(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	return dispatcher
}

// startPlain runs a plain asynq server of so many slots, interactive tasks first. It ends with the benchmark.
func startPlain(b *testing.B, socket string, lanes int, poll time.Duration, handle func(ctx context.Context, task *asynq.Task) error) {
	b.Helper()
	server := asynq.NewServer(plainRedis(socket), asynq.Config{
		Concurrency: lanes, Queues: map[string]int{"interactive": 2, "bulk": 1}, StrictPriority: true, TaskCheckInterval: poll, LogLevel: asynq.FatalLevel,
	})
	if err := server.Start(asynq.HandlerFunc(handle)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Shutdown)
}

// plainPoll is asynq's default TaskCheckInterval.
const plainPoll = time.Second

// plainClient opens a client, which is closed with the benchmark.
func plainClient(b *testing.B, socket string) *asynq.Client {
	b.Helper()
	client := asynq.NewClient(plainRedis(socket))
	b.Cleanup(func() { _ = client.Close() })
	return client
}

// enqueue is how a plain user accepts a job.
func enqueue(client *asynq.Client, id, queue string, body []byte) error {
	_, err := client.Enqueue(asynq.NewTask("transcribe", body), asynq.TaskID(id), asynq.Queue(queue), asynq.MaxRetry(5))
	return err
}

// atOnce does something n times from 16 goroutines.
func atOnce(b *testing.B, n int, do func(n int) error) {
	b.Helper()
	var wg sync.WaitGroup
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for n := range next {
				if err := do(n); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// plainRows are the tables of a plain user: the row of a job, and its result.
type plainRows struct{ *sql.DB }

func (d database) plainRows(b *testing.B) plainRows {
	b.Helper()
	db := d.openRaw(b, d.fresh(b))
	for _, table := range []string{
		"CREATE TABLE rows (id TEXT PRIMARY KEY, state TEXT NOT NULL, name TEXT NOT NULL, audio_us BIGINT NOT NULL, created_at BIGINT NOT NULL, finished_at BIGINT)",
		"CREATE TABLE results (id TEXT PRIMARY KEY, body TEXT NOT NULL)",
	} {
		if _, err := db.ExecContext(b.Context(), table); err != nil {
			b.Fatal(err)
		}
	}
	return plainRows{db}
}

func (r plainRows) insert(ctx context.Context, id string) error {
	_, err := r.ExecContext(ctx, "INSERT INTO rows (id, state, name, audio_us, created_at) VALUES ($1, 'queued', 'talk.flac', 60000000, $2)", id, time.Now().UnixMicro())
	return err
}

// finish writes the row and upserts the result, in one commit.
func (r plainRows) finish(ctx context.Context, id, body string) error {
	tx, err := r.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, "UPDATE rows SET state = 'succeeded', finished_at = $2 WHERE id = $1", id, time.Now().UnixMicro()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO results (id, body) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body", id, body); err != nil {
		return err
	}
	return tx.Commit()
}

// backlog is the size of a backlog, or a hundredth of it with -short.
func backlog(n int) int {
	if testing.Short() {
		return n / 100
	}
	return n
}
