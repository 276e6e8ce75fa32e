package queue

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary"
)

func own(t *testing.T, conn *Conn, id string) *Conn {
	t.Helper()
	if err := conn.Own(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A database of Redis is one system's, however often its processes come, and until it is emptied.
func TestOwn(t *testing.T) {
	t.Parallel()
	rec, server := newRecorder(t), newRedisServer(t)
	server.start()
	first := own(t, dial(t, server, rec), "one")
	own(t, dial(t, server, rec), "one")
	err := dial(t, server, rec).Own(context.Background(), "two")
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), `"one"`) || !strings.Contains(err.Error(), "6379/1") {
		t.Errorf("a second system: %v", err)
	}
	if err := first.client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	own(t, dial(t, server, rec), "two")
	if err := first.claim(context.Background()); !errors.Is(err, ErrForeign) {
		t.Errorf("the first, when another has taken over: %v", err)
	}
	server.kill()
	own(t, first, "one") // as Dial, it waits for a Redis that is away
}

func TestTheEmbeddedRedisIsOwned(t *testing.T) {
	t.Parallel()
	conn := Embedded(newRecorder(t).logger())
	t.Cleanup(func() { _ = conn.Close() })
	own(t, conn, "one")
	own(t, conn, "two")
}

// A Redis that becomes another system's at runtime gets nothing and loses nothing, and its tickets are not run. When it is ours again all goes on.
func TestASwappedRedis(t *testing.T) {
	t.Parallel()
	rec, server := newRecorder(t), newRedisServer(t)
	server.start()
	conn := own(t, dial(t, server, rec), "one")
	s := newSystem(t, conn, rec).start()
	ctx := context.Background()
	if err := conn.client.Set(ctx, keySystem, "two", 0).Err(); err != nil {
		t.Fatal(err)
	}
	theirs, err := newTask(aviary.Ticket{JobID: "job_theirs", Generation: 1, Priority: aviary.PriorityBulk})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.dispatcher.tasks.Enqueue(theirs); err != nil {
		t.Fatal(err)
	}
	device := &fakeDevice{name: "cpu"}
	s.worker(s.runner("w"), device)
	ids := s.submit(aviary.PriorityBulk, 3)
	eventually(t, "all parts say so", func() bool {
		return rec.count(s.sweeper.redisUnfit.begins) > 0 && rec.count(s.dispatcher.redisAway.begins) > 0 && rec.count("jobs cannot be claimed; tickets go back to the queue") > 0
	})
	eventually(t, "their ticket waits again", func() bool {
		n, err := conn.client.ZCard(ctx, keyOf(aviary.PriorityBulk, "retry")).Result()
		return err == nil && n == 1
	})
	keys, err := conn.client.Keys(ctx, "asynq:*:t:*").Result()
	if err != nil || len(keys) != 1 || !strings.Contains(keys[0], "job_theirs") {
		t.Errorf("tasks in the other system's Redis: %q, %v", keys, err)
	}
	if len(device.ran()) != 0 {
		t.Errorf("ran %q", device.ran())
	}
	if err := conn.client.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ours, and the jobs run", func() bool { return len(device.ran()) == len(ids) })
	if owner, err := conn.client.Get(ctx, keySystem).Result(); err != nil || owner != "one" {
		t.Errorf("the owner is %q, %v", owner, err)
	}
}
