package queue

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// Depth is what Redis holds. It is for people and for alarms about Redis. The backlog is the store's to tell: Redis is shallow by design, and
// says nothing about running jobs.
type Depth struct {
	Classes map[aviary.Priority]ClassDepth
	Lanes   int // devices whose workers are alive
	// Version is Redis' own; empty where it does not tell, "embedded" for the one in this process.
	Version string
	// UsedBytes is Redis' memory, MaxBytes its limit (zero: none); -1 where it does not tell.
	UsedBytes, MaxBytes int64
	// EvictedKeys is how many keys Redis has thrown away for want of memory since it started; -1 where it does not tell.
	EvictedKeys int64
}

// ClassDepth counts the tasks of one class by asynq's states.
type ClassDepth struct {
	Pending, Active, Retry, Archived int
}

// Depth looks into Redis. Only an unreachable one is an error (ErrUnreachable): what the server does not tell about itself stays unknown.
func (c *Conn) Depth(ctx context.Context) (Depth, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	d := Depth{Classes: map[aviary.Priority]ClassDepth{}, UsedBytes: -1, MaxBytes: -1, EvictedKeys: -1}
	counts := map[aviary.Priority][4]*redis.IntCmd{}
	_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, class := range aviary.Priorities() {
			counts[class] = [4]*redis.IntCmd{
				p.LLen(ctx, keyOf(class, "pending")), p.LLen(ctx, keyOf(class, "active")),
				p.ZCard(ctx, keyOf(class, "retry")), p.ZCard(ctx, keyOf(class, "archived")),
			}
		}
		return nil
	})
	if err != nil {
		return Depth{}, c.checkError(err)
	}
	for class, n := range counts {
		d.Classes[class] = ClassDepth{
			Pending: int(n[0].Val()), Active: int(n[1].Val()), Retry: int(n[2].Val()), Archived: int(n[3].Val()),
		}
	}
	if d.Lanes, err = c.lanes(ctx); err != nil {
		return Depth{}, c.checkError(err)
	}
	return d, c.describe(ctx, &d)
}

// describe fills what the server tells about itself.
func (c *Conn) describe(ctx context.Context, d *Depth) error {
	if c.memory != nil {
		d.Version = "embedded"
		return nil
	}
	info, _, err := c.info(ctx) // empty where INFO is denied
	if err != nil {
		return c.checkError(err)
	}
	d.Version = info["redis_version"]
	for name, field := range map[string]*int64{"used_memory": &d.UsedBytes, "maxmemory": &d.MaxBytes, "evicted_keys": &d.EvictedKeys} {
		if n, err := strconv.ParseInt(info[name], 10, 64); err == nil {
			*field = n
		}
	}
	return nil
}
