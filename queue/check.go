package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// CheckRedis says whether the server is fit for the queue: Redis 6.2 or newer (asynq archives with ZRANGE BYSCORE), noeviction (an evicted
// task is lost in silence and its id blocked), one writable server that is no cluster node, with a database of our own, and a clock that agrees with
// ours (leases in Redis are times). What the server does not tell, because a command is forbidden or a proxy leaves fields out, is a warning.
// ErrUnreachable says that there was no answer; any other error is for the operator to act upon.
func (c *Conn) CheckRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	if err := c.client.Ping(ctx).Err(); err != nil {
		return c.checkError(err)
	}
	if c.memory != nil {
		c.fit.Store(true)
		return nil
	}
	info, denied, err := c.info(ctx)
	if err != nil {
		return c.checkError(err)
	}
	if denied != nil {
		c.log.Warn("Redis does not let us read INFO; make sure that it is 6.2 or newer, with maxmemory-policy noeviction",
			"redis", c.address, "err", denied)
	} else if err := c.judge(info); err != nil {
		return err
	}
	if err := errors.Join(c.checkOwner(ctx), c.checkClock(ctx)); err != nil {
		return err
	}
	c.fit.Store(true)
	return nil
}

// checkError tells a server that refuses us (a password) from one that is not there, or not ready.
func (c *Conn) checkError(err error) error {
	var refused redis.Error
	passing := redis.IsLoadingError(err) || redis.IsMaxClientsError(err) || redis.IsMasterDownError(err) || redis.IsClusterDownError(err)
	if errors.As(err, &refused) && !passing {
		return fmt.Errorf("queue: Redis at %s refuses us: %w", c.address, err)
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.address, err)
}

// The oldest Redis that will do.
const oldestMajor, oldestMinor = 6, 2

// judge looks at the fields of INFO.
func (c *Conn) judge(info map[string]string) error {
	version := info["redis_version"]
	switch older, ok := olderThan(version, oldestMajor, oldestMinor); {
	case !ok:
		c.log.Warn("the version of Redis is unknown; 6.2 or newer is needed", "redis", c.address, "version", version)
	case older:
		return fmt.Errorf("queue: Redis at %s is version %s; %d.%d or newer is needed", c.address, version, oldestMajor, oldestMinor)
	}
	switch policy := info["maxmemory_policy"]; policy {
	case "noeviction":
	case "":
		c.log.Warn("the eviction policy of Redis is unknown; maxmemory-policy noeviction is needed", "redis", c.address)
	default:
		return fmt.Errorf("queue: Redis at %s may evict our keys (maxmemory-policy %s); set maxmemory-policy noeviction, or give Aviary a Redis of its own",
			c.address, policy)
	}
	if mode := info["redis_mode"]; mode == "cluster" || mode == "sentinel" {
		return fmt.Errorf("queue: Redis at %s runs as a %s node, which is not supported yet; name a single server", c.address, mode)
	}
	if info["role"] == "slave" {
		return fmt.Errorf("queue: Redis at %s is a replica and takes no writes; name its primary", c.address)
	}
	return nil
}

// unasked turns the failure of a check into its end: a server that does not let us ask is a warning, one that does not answer is an error.
func (c *Conn) unasked(err error, warning string) error {
	var refused redis.Error
	if errors.As(err, &refused) && !redis.IsLoadingError(err) {
		c.log.Warn(warning, "redis", c.address, "err", err)
		return nil
	}
	return c.checkError(err)
}

// scanCount is how many keys one SCAN looks at. ownerPages is how many of these pages checkOwner reads: ours are few, so that foreign ones show.
const (
	scanCount  = 500
	ownerPages = 20
)

// checkOwner refuses a database that others use: they might remove our keys, evict them or fill the memory, and our workers would take the tasks of
// theirs.
func (c *Conn) checkOwner(ctx context.Context) error {
	var cursor uint64
	for range ownerPages {
		found, next, err := c.client.Scan(ctx, cursor, "*", scanCount).Result()
		if err != nil {
			return c.unasked(err, "Redis does not let us SCAN; make sure that nothing else uses this database")
		}
		for _, key := range found {
			if !ours(key) {
				return c.notOurs("the key", key)
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	names, err := c.client.SMembers(ctx, keyQueues).Result()
	if err != nil {
		return c.unasked(err, "Redis does not let us read asynq's queues; make sure that nothing else uses this database")
	}
	for _, name := range names {
		if _, known := queues()[name]; !known {
			return c.notOurs("asynq's queue", name)
		}
	}
	return nil
}

func (c *Conn) notOurs(what, name string) error {
	return fmt.Errorf("queue: database %d of Redis at %s is used by something else: it holds %s %q; "+
		"give Aviary a database of its own, with its number at the end of the URL, as in redis://host:6379/%d",
		c.options.DB, c.address, what, name, c.options.DB+1)
}

// ours says whether a key may be in our database: our own, asynq's about its processes, and those of our queues.
func ours(key string) bool {
	if strings.HasPrefix(key, "aviary:") {
		return true
	}
	rest, found := strings.CutPrefix(key, "asynq:")
	if !found {
		return false
	}
	name, found := strings.CutPrefix(rest, "{") // asynq:{queue}:...
	if !found {
		return true
	}
	name, _, _ = strings.Cut(name, "}")
	_, known := queues()[name]
	return known
}

// clockWithin is how far the clocks of Redis and of this machine may be apart.
const clockWithin = 5 * time.Second

// checkClock refuses clocks that differ: asynq's leases are times of the workers' clocks, and those of machines that are not synchronized take each
// other's tasks for abandoned.
func (c *Conn) checkClock(ctx context.Context) error {
	before := time.Now()
	theirs, err := c.client.Time(ctx).Result()
	if err != nil {
		return c.unasked(err, "Redis does not tell its TIME; make sure that its clock and ours agree")
	}
	return c.judgeClock(before, theirs, time.Now())
}

// judgeClock compares the time of an answer with those between which it was given.
func (c *Conn) judgeClock(before, theirs, after time.Time) error {
	off := max(before.Sub(theirs), theirs.Sub(after))
	if off <= clockWithin {
		return nil
	}
	const layout = "2006-01-02 15:04:05 UTC"
	return fmt.Errorf("queue: two clocks differ by %v: that of Redis at %s says %s, that of this machine %s; synchronize both (NTP), they may be %v apart",
		off.Round(time.Second), c.address, theirs.UTC().Format(layout), after.UTC().Format(layout), clockWithin)
}

// info reads INFO. denied is set when the server answers but does not let us; err when it does not answer.
func (c *Conn) info(ctx context.Context) (fields map[string]string, denied, err error) {
	text, err := c.client.Info(ctx).Result()
	var refused redis.Error
	if errors.As(err, &refused) {
		return nil, err, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return parseInfo(text), nil, nil
}

// parseInfo reads the lines "name:value" of INFO; others are section heads.
func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(name, "#") {
			fields[name] = value
		}
	}
	return fields
}

// olderThan compares the first two numbers of a version; ok is false when there are no such numbers.
func olderThan(version string, major, minor int) (older, ok bool) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	if errA != nil || errB != nil {
		return false, false
	}
	return a < major || a == major && b < minor, true
}

// recheck repeats a check that had no answer when the connection was opened.
func (c *Conn) recheck(ctx context.Context) error {
	if c.fit.Load() {
		return nil
	}
	return c.CheckRedis(ctx)
}

// lanes counts the devices that are registered: each lane is an asynq server, which renews its entry, scored with the time of its end, while
// it lives. The clock is the workers', so this is an estimate.
func (c *Conn) lanes(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	n, err := c.client.ZCount(ctx, keyServers, strconv.FormatInt(time.Now().Unix(), 10), "+inf").Result()
	return int(n), err
}
