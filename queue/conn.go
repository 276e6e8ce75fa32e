package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Conn is a connection to Redis, shared by all parts of a process. It is a pool: safe for concurrent use, and it outlives any outage.
type Conn struct {
	client  redis.UniversalClient
	options *redis.Options
	log     *slog.Logger
	address string  // for people, without credentials
	memory  *memory // the server, when it is inside this process
	fit     atomic.Bool
	system  string  // whose it is, see Own; empty is anybody's
	nudges  *nudger // to the dispatcher of another process
}

// ErrUnreachable says that Redis did not answer. It may later.
var ErrUnreachable = errors.New("queue: Redis does not answer")

// The times of a connection. asynq calls most commands without a deadline, so that these bound a shutdown while Redis hangs.
const (
	dialTimeout = 3 * time.Second
	ioTimeout   = 3 * time.Second
)

// Dial opens the connection that a URL names: redis://, rediss:// (TLS) or unix://, as
// redis://[user[:password]@]host[:port][/database] or unix://[user[:password]@]/path/of/socket[?db=n]. A Redis that answers but is not
// fit (CheckRedis) is an error. One that does not answer is not: jobs are accepted without it, so it is logged, and the sweeper repeats
// the check when Redis has come.
func Dial(ctx context.Context, rawURL string, log *slog.Logger) (*Conn, error) {
	options, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	quietClient()
	c := newConn(options, log, options.Network+" "+options.Addr)
	err = c.CheckRedis(ctx)
	if errors.Is(err, ErrUnreachable) {
		log.Warn("Redis does not answer yet; jobs will wait in the store", "redis", c.address, "err", err)
		return c, nil
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func newConn(options *redis.Options, log *slog.Logger, address string) *Conn {
	client := redis.NewClient(options)
	return &Conn{client: client, options: options, log: log, address: address, nudges: newNudger(client)}
}

// Close ends the connection, and the server behind it if that is embedded. Dispatcher, Sweeper and Worker must have ended.
func (c *Conn) Close() error {
	err := c.client.Close()
	c.nudges.close()
	if c.memory != nil {
		c.memory.close()
	}
	return err
}

// quietClient silences the logger that go-redis keeps for the whole process and writes to standard error: what it reports comes back as
// the error of a command too, and is logged by whoever gave it.
func quietClient() { logging.Disable() }

// parseURL never repeats the URL, nor what could be a part of a password in it, in an error.
func parseURL(rawURL string) (*redis.Options, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("queue: the Redis URL cannot be read; in user and password, write characters such as / ? # @ as %2F %3F %23 %40")
	}
	switch scheme := strings.ToLower(u.Scheme); {
	case scheme == "unix":
	case scheme == "redis", scheme == "rediss":
		if err := checkTCP(u); err != nil {
			return nil, err
		}
	case strings.Contains(scheme, "sentinel"), strings.Contains(scheme, "cluster"):
		return nil, fmt.Errorf("queue: %s:// is not supported yet; name one server with redis://, rediss:// or unix://", scheme)
	default:
		return nil, fmt.Errorf("queue: the scheme %q of the Redis URL is none of redis, rediss, unix", u.Scheme)
	}
	options, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("queue: the Redis URL: %w", err)
	}
	return withDefaults(options), nil
}

// checkTCP refuses what redis.ParseURL would misunderstand, or name in an error although it may belong to a password.
func checkTCP(u *url.URL) error {
	if strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery, "@") {
		return errors.New("queue: the Redis URL has an @ behind its host; in user and password, write / ? # @ as %2F %3F %23 %40")
	}
	if strings.Contains(u.Host, ",") || u.Query().Has("addr") || u.Query().Has("master_name") {
		return errors.New("queue: the Redis URL names several servers; sentinel and cluster are not supported yet")
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if _, err := strconv.ParseUint(db, 10, 16); err != nil {
			return errors.New("queue: the path of a redis:// URL is the number of a database, such as /0")
		}
	}
	return nil
}

// withDefaults sets what the URL may leave open, and what is not a matter of choice.
func withDefaults(o *redis.Options) *redis.Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.DialTimeout, dialTimeout}, {&o.ReadTimeout, ioTimeout}, {&o.WriteTimeout, ioTimeout}} {
		if *d.field <= 0 { // zero is unset; a negative one means for ever, and then a stop could hang
			*d.field = d.value
		}
	}
	if o.PoolSize == 0 {
		o.PoolSize = 128 // a lane uses up to six at once; they are opened when needed
	}
	// Without this a context's deadline is ignored, and a caller waits for the retries of a client that it has given up on.
	o.ContextTimeoutEnabled = true
	// asynq asks again at once when taking a task fails: the pause between the client's two tries is what keeps a lane from spinning while
	// Redis refuses connections. More tries would only prolong a stop while it hangs. Dials have retries of their own: one is enough.
	o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = 1, 250*time.Millisecond, time.Second
	o.DialerRetries = 1
	// Two handshakes that older servers, proxies and the embedded server do not know.
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}

// switched makes a second client of the same server, with a pool of its own, that can be switched off.
func (c *Conn) switched() (*redis.Client, *offSwitch) {
	client, off := redis.NewClient(c.options), &offSwitch{}
	client.AddHook(off)
	return client, off
}

// offSwitch is a hook of go-redis that, once it is set, fails every new command and connection. asynq's goroutines call Redis without a
// deadline, again and again, and can only be stopped one after the other: with a Redis that hangs that takes minutes. And they do not
// survive that the client is closed under them: asynq's subscriber then panics.
type offSwitch struct{ off atomic.Bool }

var errSwitchedOff = errors.New("queue: the worker has ended")

// DialHook implements redis.Hook, as do the others.
func (s *offSwitch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if s.off.Load() {
			return nil, errSwitchedOff
		}
		return next(ctx, network, addr)
	}
}

// ProcessHook is about single commands.
func (s *offSwitch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.off.Load() {
			cmd.SetErr(errSwitchedOff)
			return errSwitchedOff
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook is about pipelines.
func (s *offSwitch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.off.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(errSwitchedOff)
			}
			return errSwitchedOff
		}
		return next(ctx, cmds)
	}
}
