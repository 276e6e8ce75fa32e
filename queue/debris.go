package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// debris remembers since when the sweeper has seen what asynq lost track of in Redis, where Redis does not say itself. It ends with the process, after
// which it takes one more DebrisAge.
type debris struct {
	next time.Time            // the next search
	seen map[string]time.Time // by task, the first time
}

// debrisMost bounds what is remembered and removed in one search. More waits for the next.
const debrisMost = 100_000

// clear removes what asynq has lost track of, and never clears away itself, because its recoverer knows tasks only by their lease and by their hash:
//
//   - a task in active that has no lease (the lease key was deleted; asynq's own end of the task removes the hash's id from active, fails at the
//     missing lease and leaves the hash, which blocks the id);
//   - an id in a list or set whose hash is gone (evicted or deleted): it costs each idle lane one look, again and again;
//   - a hash whose id is in no list.
//
// It must have been so for DebrisAge, and the tickets that are out are left to the audit. A running job's task may be removed: what it is good for, it
// has done. Searching reads all keys of Redis, page by page, which is why it is done rarely.
func (s *Sweeper) clear(ctx context.Context, did *Swept) error {
	now := time.Now()
	if now.Before(s.debris.next) {
		return nil
	}
	out, err := s.store.Stranded(ctx, 0, auditLimit)
	if err != nil {
		return s.observe(ctx, &s.storeAway, fmt.Errorf("list all tickets: %w", err))
	}
	live := make(map[string]bool, len(out))
	for _, t := range out {
		live[keyTask(t)] = true
	}
	seen := map[string]time.Time{}
	for _, class := range aviary.Priorities() {
		suspects, err := s.conn.suspects(ctx, class)
		if err != nil {
			return s.observe(ctx, &s.redisAway, fmt.Errorf("look for debris: %w", err))
		}
		for _, id := range suspects {
			key := keyOf(class, "t:"+id)
			if live[key] || len(seen) >= debrisMost {
				continue
			}
			first, again := s.debris.seen[key]
			if !again {
				first = now
			}
			removed, err := s.conn.clear(ctx, class, id, now.Add(-s.cfg.DebrisAge), now.Sub(first) >= s.cfg.DebrisAge)
			if err != nil {
				return s.observe(ctx, &s.redisAway, fmt.Errorf("remove debris: %w", err))
			}
			if removed {
				did.Debris++
			} else {
				seen[key] = first
			}
		}
	}
	s.debris = debris{next: now.Add(s.cfg.DebrisEvery), seen: seen}
	if did.Debris > 0 {
		s.log.Warn("removed tasks from Redis that asynq had lost track of", "tasks", did.Debris)
	}
	return nil
}

// Where asynq keeps ids: lists, sets scored with times, and the leases of the active ones.
var (
	listParts = []string{"pending", "active"}
	setParts  = []string{"scheduled", "retry", "archived", "completed"}
)

// contents is a queue's ids, as they were at one moment.
type contents struct {
	listed map[string]bool // in any list or set but lease
	active []string
	leased map[string]bool
}

func (c *Conn) contents(ctx context.Context, class aviary.Priority) (contents, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	var parts []*redis.StringSliceCmd
	var leases *redis.StringSliceCmd
	_, err := c.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, part := range listParts {
			parts = append(parts, p.LRange(ctx, keyOf(class, part), 0, -1))
		}
		for _, part := range setParts {
			parts = append(parts, p.ZRange(ctx, keyOf(class, part), 0, -1))
		}
		leases = p.ZRange(ctx, keyOf(class, "lease"), 0, -1)
		return nil
	})
	if err != nil {
		return contents{}, err
	}
	got := contents{listed: map[string]bool{}, leased: map[string]bool{}, active: parts[1].Val()}
	for _, part := range parts {
		for _, id := range part.Val() {
			got.listed[id] = true
		}
	}
	for _, id := range leases.Val() {
		got.leased[id] = true
	}
	return got, nil
}

// suspects lists ids of a class that may be debris, each once. clearScript looks again.
func (c *Conn) suspects(ctx context.Context, class aviary.Priority) ([]string, error) {
	have, err := c.contents(ctx, class)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, id := range have.active {
		if !have.leased[id] {
			found[id] = true
		}
	}
	prefix := keyOf(class, "t:")
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var page []string
		if page, cursor, err = c.scanPage(ctx, cursor, prefix+"*"); err != nil {
			return nil, err
		}
		for _, key := range page {
			if id := strings.TrimPrefix(key, prefix); !have.listed[id] {
				found[id] = true
			}
		}
	}
	known := maps.Clone(have.listed)
	maps.Copy(known, have.leased)
	for ids := range slices.Chunk(slices.Collect(maps.Keys(known)), scanCount) {
		empty, err := c.empty(ctx, class, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range empty {
			found[id] = true
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// scanPage is one page of the keys that match a pattern.
func (c *Conn) scanPage(ctx context.Context, cursor uint64, pattern string) ([]string, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	return c.client.Scan(ctx, cursor, pattern, scanCount).Result()
}

// empty picks those of a queue's ids whose hash has no msg.
func (c *Conn) empty(ctx context.Context, class aviary.Priority, ids []string) (found []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	has := make([]*redis.BoolCmd, len(ids))
	_, err = c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			has[i] = p.HExists(ctx, keyOf(class, "t:"+id), "msg")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, cmd := range has {
		if !cmd.Val() {
			found = append(found, ids[i])
		}
	}
	return found, nil
}

// clearScript removes a task if asynq has lost track of it: its hash has no msg, it is active without a lease, or it is in no list or set. Its age is
// that of pending_since where the hash has one; else the caller's memory must do.
//
//	KEYS  the task's hash; pending, active (lists); lease, scheduled, retry, archived, completed (sorted sets)
//	ARGV  the task's id; the newest pending_since that is old enough, in nanoseconds; 1 if the caller has seen it for long enough, else 0
//	returns 1 if it was removed, else 0
var clearScript = redis.NewScript(`
local since = redis.call("HGET", KEYS[1], "pending_since")
if since then
	if tonumber(since) > tonumber(ARGV[2]) then
		return 0
	end
elseif ARGV[3] ~= "1" then
	return 0
end
if redis.call("HEXISTS", KEYS[1], "msg") == 1 then
	local lost = true
	if redis.call("LPOS", KEYS[2], ARGV[1]) then
		lost = false
	end
	if redis.call("LPOS", KEYS[3], ARGV[1]) and redis.call("ZSCORE", KEYS[4], ARGV[1]) then
		lost = false
	end
	for i = 5, 8 do
		if redis.call("ZSCORE", KEYS[i], ARGV[1]) then
			lost = false
		end
	end
	if not lost then
		return 0
	end
end
redis.call("LREM", KEYS[2], 0, ARGV[1])
redis.call("LREM", KEYS[3], 0, ARGV[1])
for i = 4, 8 do
	redis.call("ZREM", KEYS[i], ARGV[1])
end
redis.call("DEL", KEYS[1])
return 1`)

// clear removes a task that is debris. old is the time before which it must be pending, seen says that it has been seen for that long.
func (c *Conn) clear(ctx context.Context, class aviary.Priority, id string, old time.Time, seen bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	names := []string{keyOf(class, "t:"+id)}
	for _, part := range []string{"pending", "active", "lease", "scheduled", "retry", "archived", "completed"} {
		names = append(names, keyOf(class, part))
	}
	long := "0"
	if seen {
		long = "1"
	}
	return clearScript.Run(ctx, c.client, names, id, strconv.FormatInt(old.UnixNano(), 10), long).Bool()
}
