package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/probe"
	"github.com/aviary-asr/aviary/queue"
	"github.com/aviary-asr/aviary/store"
)

// Role says which parts of the system a process runs.
type Role string

// The roles. Every role takes part in the election of the one that dispatches and sweeps: without any, jobs would be stranded.
const (
	RoleAll    Role = "all"
	RoleAPI    Role = "api"
	RoleWorker Role = "worker"
)

func parseRole(s string) (Role, error) {
	switch r := Role(s); r {
	case RoleAll, RoleAPI, RoleWorker:
		return r, nil
	}
	return "", fmt.Errorf("role %q is none of all, api, worker", s)
}

// freeBytes is kept free on the disk of the uploads: refusing early beats a full disk under running jobs.
const freeBytes = 256 << 20

// System is one process of Aviary: the parts that its role needs, wired. It runs in tests as it does in production.
type System struct {
	log      *slog.Logger
	settings Settings
	timing   Timing
	observer aviary.Observer // the metrics, or what Program.Observe made of them
	role     Role

	store      aviary.Store
	blobs      *aviary.BoundBlobs
	prober     *probe.Prober
	conn       *queue.Conn
	leader     *queue.Leader
	keeper     *aviary.Housekeeper
	dispatcher *queue.Dispatcher
	sweeper    *queue.Sweeper
	worker     *queue.Worker
	devices    []*workDevice
	meter      *aviary.Meter
	metrics    *api.Metrics
	server     *api.Server

	api, observe *listener
	lock         *os.File

	name, node string      // of this process and of its place, in the store
	started    atomic.Bool // Start has done its work
	stuck      bool        // a device may not have come back: closing it would wait for it

	background sync.WaitGroup
	stopWork   context.CancelFunc
	stopOnce   sync.Once
	stopped    error      // of Stop
	failed     chan error // a listener died, or a device failed
}

// Start brings a process up: when it returns, the API answers and the worker takes jobs. The API answers before that, and is not ready yet. What was
// opened is closed again when Start fails.
func (p Program) Start(ctx context.Context, role Role, settings Settings, log *slog.Logger) (_ *System, err error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	if role != RoleAll && settings.RedisURL == "" {
		return nil, usageError(fmt.Errorf("--role %s needs a Redis that it shares with the other roles: set AVIARY_REDIS_URL", role))
	}
	s := &System{log: log, settings: settings, timing: p.Timing.withDefaults(), role: role, failed: make(chan error, 3), name: workerName()}
	defer func() {
		if err != nil {
			stopping, cancel := stopContext(ctx, hurry)
			defer cancel()
			err = errors.Join(err, s.Stop(stopping))
		}
	}()
	if err := s.openData(ctx); err != nil {
		return nil, err
	}
	if s.prober, err = newProber(ctx, settings, log); err != nil {
		return nil, err
	}
	s.meter = &aviary.Meter{Store: s.store, Log: log}
	s.metrics = api.NewMetrics(api.MetricsConfig{Store: s.store, Blobs: s.blobs, Redis: s.redisState, Rate: s.meter.Rate, Leads: s.leads, Version: version(), Log: log})
	s.observer = s.metrics
	if p.Observe != nil {
		s.observer = p.Observe(s.metrics)
	}
	if err := s.openQueue(ctx); err != nil {
		return nil, err
	}
	if err := s.openAPI(); err != nil {
		return nil, err
	}
	s.run() //nolint:contextcheck // what runs outlives Start, until Stop
	if role != RoleAPI {
		if err := s.startWorker(ctx, p.Backends); err != nil {
			return nil, err
		}
	}
	s.started.Store(true)
	return s, nil
}

// openData opens store and blobs. A process that runs everything owns its data directory alone; the other roles share theirs.
func (s *System) openData(ctx context.Context) error {
	dir := s.settings.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	var err error
	s.lock, err = lockFile(filepath.Join(dir, "lock"), s.role == RoleAll)
	if errors.Is(err, errLocked) {
		err = errors.New("another aviary serve uses it, and role all needs it alone")
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	if s.role != RoleAPI { // it has no devices, and may be on another host than the workers that share the directory
		if s.node, err = nodeID(ctx, dir, s.log); err != nil {
			return err
		}
	}
	url := s.settings.DatabaseURL
	if url == "" {
		url = "sqlite:" + filepath.Join(dir, "aviary.db")
	}
	if s.store, err = store.Open(ctx, url, store.Options{}); err != nil {
		return fmt.Errorf("AVIARY_DATABASE_URL: %w", err)
	}
	url = s.settings.BlobURL
	if url == "" {
		url = "file:" + filepath.Join(dir, "blobs")
	}
	blobs, err := store.OpenBlobs(ctx, url)
	if err != nil {
		return fmt.Errorf("AVIARY_BLOB_URL: %w", err)
	}
	if s.blobs, err = aviary.BindBlobs(ctx, blobs, s.store); err != nil {
		return fmt.Errorf("AVIARY_BLOB_URL: %w", err)
	}
	return s.warnOfOrphans(ctx)
}

func (s *System) openQueue(ctx context.Context) error {
	var err error
	if s.settings.RedisURL == "" {
		s.conn = queue.Embedded(s.log)
	} else if s.conn, err = queue.Dial(ctx, s.settings.RedisURL, s.log); err != nil {
		return fmt.Errorf("AVIARY_REDIS_URL: %w", err)
	}
	id, err := s.store.SystemID(ctx)
	if err != nil {
		return fmt.Errorf("AVIARY_DATABASE_URL: %w", err)
	}
	if err := s.conn.Own(ctx, id); err != nil {
		return fmt.Errorf("AVIARY_REDIS_URL: %w", err)
	}
	cfg := s.queueConfig()
	if s.dispatcher, err = queue.NewDispatcher(s.conn, s.store, cfg, s.log); err != nil {
		return err
	}
	if s.sweeper, err = queue.NewSweeper(s.conn, s.store, s.dispatcher, cfg, s.log); err != nil {
		return err
	}
	s.sweeper.Report = s.reportSweep
	s.keeper = s.housekeeper()
	s.leader, err = queue.NewLeader(s.store, s.leaderName(), s.timing.Term, s.log)
	return err
}

func (s *System) queueConfig() queue.Config {
	cfg := s.timing.Queue
	cfg.Drain, cfg.Grace = s.settings.DrainTimeout, 2*s.timing.Grace
	return cfg
}

// openAPI opens the listeners: the API where the role has one, and the metrics always.
func (s *System) openAPI() error {
	var err error
	intake := &aviary.Intake{
		Store: s.store, Blobs: s.blobs, Prober: s.prober, Waker: s.dispatcher, Observer: s.observer, Log: s.log,
		NewID: func() string { return "job_" + ulid.Make().String() },
		Limits: aviary.IntakeLimits{
			Duration: s.settings.MaxDuration, UploadBytes: s.settings.MaxUploadBytes, FreeBytes: freeBytes,
			Queue: aviary.QueueLimits{Jobs: s.settings.MaxQueueJobs, Audio: s.settings.MaxQueueAudio,
				TenantJobs: s.settings.MaxTenantJobs, TenantAudio: s.settings.MaxTenantAudio},
			MaxAttempts: aviary.DefaultMaxAttempts,
		},
		Rate:     s.meter.Rate,
		Decoding: make(chan struct{}, s.settings.decodes()),
	}
	s.server, err = api.New(api.Config{Intake: intake, Store: s.store, Metrics: s.metrics, Log: s.log, Version: version(), Ready: s.ready, Tenant: s.tenantOf(),
		Formats: s.prober.Formats()})
	if err != nil {
		return err
	}
	if s.role != RoleWorker {
		if s.api, err = listen(s.settings.Listen, s.server, s.log); err != nil {
			return fmt.Errorf("AVIARY_LISTEN: %w", err)
		}
	}
	if s.settings.MetricsListen != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", s.metrics)
		for _, path := range []string{"/livez", "/readyz", "/startupz", "/health"} { // a worker has no other port
			mux.Handle("GET "+path, s.server)
		}
		if s.observe, err = listen(s.settings.MetricsListen, mux, s.log); err != nil {
			return fmt.Errorf("AVIARY_METRICS_LISTEN: %w", err)
		}
	}
	return nil
}

// ready says whether a request can be served, or a job run: the store answers, and the recordings are there. Redis may be away: jobs are accepted all the same.
func (s *System) ready(ctx context.Context) error {
	if !s.started.Load() {
		return fmt.Errorf("%w: the worker is not ready", api.ErrStarting)
	}
	_, err := s.store.Backlog(ctx)
	if err != nil {
		s.log.Error("the store does not answer", "err", err)
		return errors.New("the store does not answer")
	}
	if err := s.blobs.Check(ctx); err != nil {
		s.log.Error("the storage of recordings is not there: nothing is accepted, and no job is taken", "err", err)
		return errors.New("the storage of recordings is not there")
	}
	return nil
}

// run starts everything that was opened.
func (s *System) run() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stopWork = cancel
	s.background.Go(func() { s.leader.Run(ctx, s.dispatcher.Run, s.sweeper.Run, s.keeper.Run) })
	s.background.Go(func() { s.sweepBlobs(ctx) })
	s.background.Go(func() { s.meter.Run(ctx) })
	for _, l := range []*listener{s.api, s.observe} {
		if l != nil {
			l.serve(s.failed)
		}
	}
	if s.api != nil {
		s.log.Info("the API listens", "url", s.URL())
	}
	if s.observe != nil {
		s.log.Info("metrics are served", "url", s.MetricsURL())
	}
}

// sweepEvery is between two looks for what crashed processes left among the blobs.
const sweepEvery = 10 * time.Minute

// sweepBlobs removes such things, where the kind of blobs has any.
func (s *System) sweepBlobs(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.blobs.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the staging folder was not swept", "err", err)
		}
	}
}

// URL is where the API answers.
func (s *System) URL() string { return "http://" + s.api.Addr().String() }

// MetricsURL is where Prometheus scrapes.
func (s *System) MetricsURL() string { return "http://" + s.observe.Addr().String() + "/metrics" }

// Failed yields the error of a listener that died, or of a device that failed: the process should stop.
func (s *System) Failed() <-chan error { return s.failed }

// Stop ends the process's work and loses nothing: new uploads are refused, running jobs go on until the drain timeout and are then given
// back to the queue, while the API goes on answering; then uploads under way are finished, and queue and store closed. When ctx ends it hurries. A second call waits for
// the first and returns what that did.
func (s *System) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopped = s.stop(ctx) })
	return s.stopped
}

func (s *System) stop(ctx context.Context) error {
	if s.server != nil { // nil when Start failed early
		s.server.Drain()
	}
	var errs []error
	if s.worker != nil {
		err := s.worker.Stop(ctx)
		s.stuck = err != nil
		errs = append(errs, err)
	}
	for _, l := range []*listener{s.api, s.observe} {
		if l != nil {
			l.shutdown(ctx)
		}
	}
	errs = append(errs, s.close())
	s.log.Info("stopped")
	return errors.Join(errs...)
}

// close closes what is open, in the reverse order of opening.
func (s *System) close() error {
	var errs []error
	for _, l := range []*listener{s.api, s.observe} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if s.stopWork != nil {
		s.stopWork()
		s.background.Wait()
	}
	for _, d := range s.devices {
		if !s.stuck {
			errs = append(errs, d.Close())
		}
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// listener is an HTTP server on its socket.
type listener struct {
	net.Listener
	server *http.Server
}

// listen opens the socket at once, so that a taken port is an error of Start.
func listen(address string, h http.Handler, log *slog.Logger) (*listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &listener{l, api.NewHTTPServer(h, log)}, nil
}

func (l *listener) serve(failed chan<- error) {
	go func() {
		if err := l.server.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}()
}

// shutdown lets requests under way finish, at most until ctx ends.
func (l *listener) shutdown(ctx context.Context) {
	if err := l.server.Shutdown(ctx); err != nil {
		_ = l.server.Close() // it hurries; what is cut off was not acknowledged
	}
}

// Close ends the listener at once; after a shutdown it does nothing.
func (l *listener) Close() error {
	if err := l.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	if err := l.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
