package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// taskType is the one type of task there is.
const taskType = "aviary:ticket"

// The options of a task. Its failures are none of a job's: it fails while the store is away, or when a worker dies before the claim.
const (
	// maxRetry must not be zero: asynq archives a task whose delivery was lost in the network, without running it, when no retry is left.
	maxRetry = 10
	// taskTimeout is never reached. asynq frees its slot at the timeout, though the handler goes on.
	taskTimeout = 24 * time.Hour
)

// payload is what Redis holds of a job.
type payload struct {
	Job        string          `json:"job"`
	Generation int             `json:"generation"`
	Priority   aviary.Priority `json:"priority"`
}

// newTask makes the task of a ticket. Its id is "job.generation": handing a ticket over twice conflicts, and handing a job over again does
// not, whatever state the task of an older generation is stuck in. It has no Retention, since nobody reads a finished task, and no Unique
// lock, since that one does not hold (it is not renewed, and taken even when the id conflicts).
func newTask(t aviary.Ticket) (*asynq.Task, error) {
	p, err := json.Marshal(payload{Job: t.JobID, Generation: t.Generation, Priority: t.Priority})
	if err != nil {
		return nil, fmt.Errorf("queue: encode a ticket: %w", err)
	}
	return asynq.NewTask(taskType, p, asynq.TaskID(taskID(t)), asynq.Queue(string(t.Priority)),
		asynq.MaxRetry(maxRetry), asynq.Timeout(taskTimeout)), nil
}

func taskID(t aviary.Ticket) string { return fmt.Sprintf("%s.%d", t.JobID, t.Generation) }

// parseTask reads a task's payload.
func parseTask(p []byte) (aviary.Ticket, error) {
	var got payload
	if err := json.Unmarshal(p, &got); err != nil {
		return aviary.Ticket{}, fmt.Errorf("queue: the task's payload: %w", err)
	}
	if got.Job == "" || got.Generation < 1 {
		return aviary.Ticket{}, fmt.Errorf("queue: the task names job %q, generation %d", got.Job, got.Generation)
	}
	if got.Priority != aviary.PriorityInteractive && got.Priority != aviary.PriorityBulk {
		return aviary.Ticket{}, fmt.Errorf("queue: the task has the priority %q", got.Priority)
	}
	return aviary.Ticket{JobID: got.Job, Generation: got.Generation, Priority: got.Priority}, nil
}

// queues are asynq's queues and their ranks: one for each class, and strictly the first one first.
func queues() map[string]int {
	classes := aviary.Priorities()
	ranks := make(map[string]int, len(classes))
	for i, class := range classes {
		ranks[string(class)] = len(classes) - i
	}
	return ranks
}

// The keys of asynq v0.26 that we read or mend ourselves, because its Inspector refuses to (a task that is "active") or fails as a whole on
// one damaged task. Each test that looks into Redis holds them to the version in use.
const (
	keyQueues  = "asynq:queues"  // set of queue names; asynq's tools see no other queues
	keyServers = "asynq:servers" // sorted set of running servers, by the second at which they count as dead
)

// keyOf is the key of a queue's list or set: pending, active (lists), lease, retry, archived, completed (sorted sets).
func keyOf(class aviary.Priority, part string) string { return "asynq:{" + string(class) + "}:" + part }

// keyTask is the hash of a task: msg, state, pending_since.
func keyTask(t aviary.Ticket) string { return keyOf(t.Priority, "t:"+taskID(t)) }

// forgetScript removes a task from whatever state it is in.
//
//	KEYS  the task's hash; pending, active (lists); lease, retry, archived, completed (sorted sets)
//	ARGV  the task's id
//	returns 1 if there was a hash, else 0
var forgetScript = redis.NewScript(`
redis.call("LREM", KEYS[2], 0, ARGV[1])
redis.call("LREM", KEYS[3], 0, ARGV[1])
for i = 4, 7 do
	redis.call("ZREM", KEYS[i], ARGV[1])
end
return redis.call("DEL", KEYS[1])`)

// forget removes the task of a ticket that is claimed or taken back. Such a task is worthless, whatever it is doing: all that it can still do
// is fail to claim. Left alone it would cost a lane one look, or, where asynq has lost track of it, stay for ever.
func (c *Conn) forget(ctx context.Context, t aviary.Ticket) error {
	keys := []string{keyTask(t)}
	for _, part := range []string{"pending", "active", "lease", "retry", "archived", "completed"} {
		keys = append(keys, keyOf(t.Priority, part))
	}
	return forgetScript.Run(ctx, c.client, keys, taskID(t)).Err()
}
