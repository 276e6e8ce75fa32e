package queue

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// keyWake is the channel of Redis on which a process tells the dispatcher of another one to look for waiting jobs. Messages are empty, and losing
// one costs a tick.
const keyWake = "aviary:wake"

// nudgeFor bounds one nudge. It is worthless when it comes later than a tick.
const nudgeFor = time.Second

// nudger publishes nudges, one at a time and at most one each passGap, whoever asks how often. While Redis is away they are lost in silence.
type nudger struct {
	client redis.UniversalClient

	mu          sync.Mutex
	busy, again bool
	closed      bool
	sending     sync.WaitGroup
	end         chan struct{}
}

func newNudger(client redis.UniversalClient) *nudger {
	return &nudger{client: client, end: make(chan struct{})}
}

// nudge never blocks.
func (n *nudger) nudge() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if n.busy {
		n.again = true
		return
	}
	n.busy = true
	n.sending.Go(n.send)
}

// send publishes until nobody has asked again.
func (n *nudger) send() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), nudgeFor)
		_ = n.client.Publish(ctx, keyWake, "").Err() // lost in silence: the dispatcher says when Redis is away
		cancel()
		sleep(context.Background(), passGap, n.end)
		n.mu.Lock()
		if !n.again || n.closed {
			n.busy = false
			n.mu.Unlock()
			return
		}
		n.again = false
		n.mu.Unlock()
	}
}

// close waits for what is being sent.
func (n *nudger) close() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.end)
	}
	n.mu.Unlock()
	n.sending.Wait()
}

// listen calls wake for each nudge of another process, until ctx ends. The subscription comes back by itself after an outage; what was said
// meanwhile is lost, so that wake is called once when it has come back, too.
func (c *Conn) listen(ctx context.Context, wake func()) {
	if c.memory != nil {
		return // there is no other process
	}
	sub := c.client.Subscribe(ctx, keyWake)
	defer sub.Close() //nolint:errcheck // best effort: there is nothing left to lose
	heard := sub.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-heard:
			if !open {
				return
			}
			wake()
		}
	}
}
