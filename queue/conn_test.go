package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, network, addr, user, password string }{
		{"redis://", "tcp", "localhost:6379", "", ""},
		{"redis://example.com", "tcp", "example.com:6379", "", ""},
		{"redis://u:p%2Fw@example.com:7000/3", "tcp", "example.com:7000", "u", "p/w"},
		{"rediss://:pw@[::1]:6380", "tcp", "[::1]:6380", "", "pw"},
		{"unix:///run/redis.sock?db=2", "unix", "/run/redis.sock", "", ""},
		{"unix://u:p@/run/redis.sock", "unix", "/run/redis.sock", "u", "p"},
	} {
		o, err := parseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if o.Network != c.network || o.Addr != c.addr || o.Username != c.user || o.Password != c.password {
			t.Errorf("%s: got %s %s, user %q, password %q", c.url, o.Network, o.Addr, o.Username, o.Password)
		}
		if !o.ContextTimeoutEnabled || o.MaxRetries < 1 || o.DialTimeout <= 0 || o.ReadTimeout <= 0 || o.WriteTimeout <= 0 {
			t.Errorf("%s: the client's times are %v %d %v %v %v", c.url, o.ContextTimeoutEnabled, o.MaxRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout)
		}
		if tls := strings.HasPrefix(c.url, "rediss"); tls != (o.TLSConfig != nil) {
			t.Errorf("%s: TLS %v", c.url, o.TLSConfig != nil)
		}
	}
	o, err := parseURL("redis://h?read_timeout=-1&max_retries=-1&dial_timeout=1s")
	if err != nil || o.ReadTimeout != ioTimeout || o.MaxRetries != 1 || o.DialTimeout != time.Second {
		t.Errorf("times from the URL: %v %v %v, %v", o.ReadTimeout, o.MaxRetries, o.DialTimeout, err)
	}
}

func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"", "none of redis, rediss, unix"},
		{"localhost:6379", "none of redis, rediss, unix"},
		{"http://h", "none of redis, rediss, unix"},
		{"redis-sentinel://h:1/0", "redis-sentinel:// is not supported yet"},
		{"redis+cluster://h:1", "redis+cluster:// is not supported yet"},
		{"redis://h1:1?addr=h2:2", "sentinel and cluster are not supported yet"},
		{"redis://h1,h2", "sentinel and cluster are not supported yet"},
		{"redis://h/db", "the number of a database"},
		{"redis://h?nonsense=1", "nonsense"},
		{"unix://", "socket"},
		// Passwords that were not escaped end up in other parts of the URL.
		{"redis://u:se/cret@h", "%2F"},
		{"redis://u:12/cret@h", "%2F"},
		{"redis://u:12?cret@h", "%3F"},
		{"redis://u:se%cret@h", "%2F"},
	} {
		_, err := parseURL(c.url)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.url, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: the error shows the password: %v", c.url, err)
		}
	}
}

func TestCheckRedis(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		extra []string
		url   func(s *redisServer) string
		want  string // empty: fit
		warns string
	}{
		"fit":      {},
		"evicts":   {extra: []string{"--maxmemory-policy", "allkeys-lru"}, want: "maxmemory-policy allkeys-lru"},
		"password": {extra: []string{"--requirepass", "x"}, want: "refuses us"},
		"wrong password": {
			extra: []string{"--requirepass", "x"}, want: "refuses us",
			url: func(s *redisServer) string { return "unix://default:sesame@" + s.socket },
		},
		"right password": {
			extra: []string{"--requirepass", "x"},
			url:   func(s *redisServer) string { return "unix://default:x@" + s.socket },
		},
		"no INFO": {
			extra: []string{"--user", "default", "on", "nopass", "~*", "&*", "+@all", "-info"},
			warns: "Redis does not let us read INFO; make sure that it is 6.2 or newer, with maxmemory-policy noeviction",
		},
		"no SCAN, no TIME": {
			extra: []string{"--user", "default", "on", "nopass", "~*", "&*", "+@all", "-scan", "-time"},
			warns: "Redis does not let us SCAN; make sure that nothing else uses this database",
		},
		"no TIME": {
			extra: []string{"--user", "default", "on", "nopass", "~*", "&*", "+@all", "-time"},
			warns: "Redis does not tell its TIME; make sure that its clock and ours agree",
		},
		"cluster node": {extra: []string{"--cluster-enabled", "yes"}, want: "cluster node"},
		"replica":      {extra: []string{"--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "yes"}, want: "replica"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := newRecorder(t)
			s := newRedisServer(t, c.extra...)
			s.start()
			url := s.url()
			if c.url != nil {
				url = c.url(s)
			}
			conn, err := Dial(context.Background(), url, rec.logger())
			if conn != nil {
				defer conn.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if errors.Is(err, ErrUnreachable) {
				t.Error("it was reached")
			}
			if err != nil && strings.Contains(err.Error(), "sesame") {
				t.Errorf("the error shows the password: %v", err)
			}
			if c.warns != "" && rec.count(c.warns) != 1 {
				t.Error("no warning")
			}
		})
	}
}

// TestCheckOwner: a database that something else uses is refused, by name and with a way out. One that we have used is not, nor another one of the server.
func TestCheckOwner(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, c := range map[string]struct {
		fill func(p redis.Pipeliner)
		want []string // empty: fit
	}{
		"empty": {func(redis.Pipeliner) {}, nil},
		"ours": {func(p redis.Pipeliner) {
			p.Set(ctx, keyEpoch, "x", 0)
			p.SAdd(ctx, keyQueues, "bulk", "interactive")
			p.LPush(ctx, "asynq:{bulk}:pending", "job_a.1")
			p.HSet(ctx, "asynq:{interactive}:t:job_a.1", "msg", "x")
			p.Set(ctx, "asynq:{interactive}:processed:2026-12-01", "1", 0)
			p.ZAdd(ctx, keyServers, redis.Z{Score: 1, Member: "x"})
			p.Set(ctx, "asynq:servers:{host:1:x}", "x", 0)
			p.HSet(ctx, "asynq:workers:{host:1:x}", "x", "x")
		}, nil},
		"somebody's key": {func(p redis.Pipeliner) { p.Set(ctx, "session:1", "x", 0) }, []string{`the key "session:1"`, "a database of its own", "/4"}},
		"one among many": {func(p redis.Pipeliner) {
			for i := range 2000 {
				p.Set(ctx, fmt.Sprint("asynq:{bulk}:t:", i), "x", 0)
			}
			p.Set(ctx, "session:1", "x", 0)
		}, []string{`the key "session:1"`}},
		"somebody's queue":          {func(p redis.Pipeliner) { p.LPush(ctx, "asynq:{default}:pending", "x") }, []string{`asynq:{default}:pending`}},
		"somebody's queue, by name": {func(p redis.Pipeliner) { p.SAdd(ctx, keyQueues, "default") }, []string{`asynq's queue "default"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := newRecorder(t)
			s := newRedisServer(t)
			s.start()
			raw := redis.NewClient(&redis.Options{Network: "unix", Addr: s.socket, DB: 3})
			defer raw.Close()
			if _, err := raw.Pipelined(ctx, func(p redis.Pipeliner) error { c.fill(p); return nil }); err != nil {
				t.Fatal(err)
			}
			conn, err := Dial(ctx, s.url()+"?db=3", rec.logger())
			if conn != nil {
				defer conn.Close()
			}
			if len(c.want) == 0 && err != nil || len(c.want) > 0 && err == nil {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			other, err := Dial(ctx, s.url()+"?db=4", rec.logger())
			if err != nil {
				t.Fatalf("another database: %v", err)
			}
			defer other.Close()
		})
	}
}

func TestJudgeClock(t *testing.T) {
	t.Parallel()
	c := &Conn{address: "here"}
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for _, off := range []time.Duration{0, time.Second, -5 * time.Second, 7 * time.Second} { // the answer took 2 s
		if err := c.judgeClock(now, now.Add(off), now.Add(2*time.Second)); err != nil {
			t.Errorf("%v apart: %v", off, err)
		}
	}
	for _, off := range []time.Duration{-6 * time.Second, 8 * time.Second, time.Hour} {
		err := c.judgeClock(now, now.Add(off), now.Add(2*time.Second))
		if err == nil || !strings.Contains(err.Error(), "Redis at here says "+now.Add(off).Format("2006-01-02 15:04:05")) ||
			!strings.Contains(err.Error(), "this machine 2026-12-01 12:00:02 UTC") {
			t.Errorf("%v apart: %v", off, err)
		}
	}
}

// TestClockOfRedis: the server's clock is asked. A real server has ours, so that another one answers.
func TestClockOfRedis(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn := embedded(t, rec)
	if err := conn.checkClock(context.Background()); err != nil {
		t.Error(err)
	}
	conn.memory.server.SetTime(time.Now().Add(-time.Minute))
	if err := conn.checkClock(context.Background()); err == nil || !strings.Contains(err.Error(), "two clocks differ by 1m0s") {
		t.Errorf("a minute apart: %v", err)
	}
}

func TestDialWithoutRedis(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn, err := Dial(context.Background(), "unix:///nonexistent/redis.sock", rec.logger())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.CheckRedis(context.Background()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("CheckRedis: %v", err)
	}
	if _, err := conn.Depth(context.Background()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("Depth: %v", err)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	fit := map[string]string{"redis_version": "6.2.0", "maxmemory_policy": "noeviction", "redis_mode": "standalone", "role": "master"}
	for name, c := range map[string]struct {
		field, value, want string
		warnings           int
	}{
		"oldest":         {"redis_version", "6.2.0", "", 0},
		"too old":        {"redis_version", "6.0.16", "6.2 or newer", 0},
		"much too old":   {"redis_version", "5.0.7", "6.2 or newer", 0},
		"new":            {"redis_version", "8.0.1", "", 0},
		"ten is not one": {"redis_version", "10.1.0", "", 0},
		"no version":     {"redis_version", "", "", 1},
		"odd version":    {"redis_version", "unstable", "", 1},
		"no policy":      {"maxmemory_policy", "", "", 1},
		"volatile":       {"maxmemory_policy", "volatile-lru", "volatile-lru", 0},
		"sentinel":       {"redis_mode", "sentinel", "sentinel node", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := newRecorder(t)
			info := map[string]string{}
			for k, v := range fit {
				info[k] = v
			}
			info[c.field] = c.value
			err := (&Conn{log: rec.logger(), address: "here"}).judge(info)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if n := len(rec.counts); n != c.warnings {
				t.Errorf("%d warnings: %v", n, rec.counts)
			}
		})
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec, func(c *Config) { c.Devices = 1 }).start()
		s.submit(aviary.PriorityBulk, 5)
		work := newGate()
		s.worker(s.runner("w"), &fakeDevice{name: "a", work: work.pass})
		work.next(t)
		var d Depth
		eventually(t, "one ticket to run and two to wait", func() bool {
			var err error
			if d, err = conn.Depth(context.Background()); err != nil {
				t.Fatal(err)
			}
			return d.Classes[aviary.PriorityBulk] == ClassDepth{Pending: 2, Active: 1} && d.Lanes == 1
		})
		if d.Classes[aviary.PriorityInteractive] != (ClassDepth{}) {
			t.Errorf("interactive: %+v", d.Classes[aviary.PriorityInteractive])
		}
		if conn.memory != nil {
			if d.Version != "embedded" || d.UsedBytes != -1 || d.MaxBytes != -1 || d.EvictedKeys != -1 {
				t.Errorf("the embedded server tells %+v", d)
			}
		} else if d.Version == "" || d.UsedBytes <= 0 || d.MaxBytes != 0 || d.EvictedKeys != 0 {
			t.Errorf("the server tells %+v", d)
		}
		close(work.open)
	})
}

// TestEmbeddedPipelines: more than any buffer between client and server, in both directions.
func TestEmbeddedPipelines(t *testing.T) {
	t.Parallel()
	conn := embedded(t, newRecorder(t))
	ctx := context.Background() // the client's own timeout ends a deadlock
	value := strings.Repeat("x", 1000)
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			var last *redis.StringCmd
			_, err := conn.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for range 200 {
					p.Set(ctx, "k", value, 0)
					last = p.Get(ctx, "k")
				}
				return nil
			})
			if err != nil || last.Val() != value {
				t.Errorf("the last of the pipeline: %d bytes, %v", len(last.Val()), err)
			}
		})
	}
	clients.Wait()
}

// TestEmbeddedTimeRuns: keys expire without anybody's help.
func TestEmbeddedTimeRuns(t *testing.T) {
	t.Parallel()
	conn := embedded(t, newRecorder(t))
	if err := conn.client.Set(context.Background(), "k", "v", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key to expire", func() bool { return conn.client.Exists(context.Background(), "k").Val() == 0 })
}

func TestEmbeddedClose(t *testing.T) {
	t.Parallel()
	conn := Embedded(newRecorder(t).logger())
	if err := conn.CheckRedis(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.memory.dial(context.Background(), "", ""); !errors.Is(err, errClosed) {
		t.Errorf("dial after Close: %v", err)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Config){
		"Devices is -1":          func(c *Config) { c.Devices = -1 },
		"Drain is -1s":           func(c *Config) { c.Drain = -time.Second },
		"Grace is -1s":           func(c *Config) { c.Grace = -time.Second },
		"PerDevice is 0":         func(c *Config) { c.PerDevice = 0 },
		"MaxPerDevice is 0":      func(c *Config) { c.MaxPerDevice = 0 },
		"more than MaxPerDevice": func(c *Config) { c.PerDevice = 65 },
		"FastTick is 0s":         func(c *Config) { c.FastTick = 0 },
		"longer than BusyTick":   func(c *Config) { c.FastTick = time.Minute },
		"DebrisEvery is 0s":      func(c *Config) { c.DebrisEvery = 0 },
		"DebrisAge is 0s":        func(c *Config) { c.DebrisAge = 0 },
		"Page is 0":              func(c *Config) { c.Page = 0 },
		"Release is 0s":          func(c *Config) { c.Release = 0 },
		"SweepEvery is 0s":       func(c *Config) { c.SweepEvery = 0 },
		"longer than IdleTick":   func(c *Config) { c.BusyTick = time.Hour },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
