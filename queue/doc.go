// Package queue carries jobs from the store to devices, over asynq and Redis. It is the only package that knows either.
//
// The row in the store is the job; a task in Redis is a hint that the row may be claimable. Its payload is a ticket (job, generation) and
// nothing else, so that losing, doubling or delaying one is harmless: whoever runs a ticket claims the row first, the claim holds for one
// generation, and each end of an attempt is fenced by its number. asynq delivers, and keeps one slot per device. It does not decide about
// retries, results, uniqueness, timeouts or cancellation, because it loses each of them in some failure.
//
//   - Dispatcher hands waiting rows over, fairly and a shallow window at a time; Redis being away leaves them waiting and fails nobody.
//   - Worker takes tickets, one lane per device, and calls Runner under the lane's own lock.
//   - Sweeper repairs what either side lost: attempts of dead or hanging workers, tickets that are gone or stuck in Redis, a wiped Redis.
//   - Leader runs Dispatcher and Sweeper in one process of all. Dispatchers elsewhere pass on wake-ups to it.
//   - Conn is the connection, to a Redis server or to one inside the process (Embedded).
//
// The package reads no flags, no environment and no signals, and never calls asynq's Run.
//
// # Start and stop
//
// The parts are independent of each other and may start in any order. A process stops them in this order:
//
//  1. Worker.Stop: every lane stops taking tickets, the running jobs go on until the drain time is over or Stop's context ends, then their
//     contexts are canceled with the cause aviary.ErrDrain and the jobs are released uncharged; last, asynq's servers shut down.
//  2. The context of Leader.Run is canceled, and with it those of Dispatcher.Run and Sweeper.Run; it waits for both and resigns. It comes after the
//     worker so that a released job is handed over again while the process still runs; before would be just as safe.
//  3. Conn.Close, which also ends an embedded server. Nothing in it is worth keeping: the next start finds an empty Redis and takes all
//     tickets back.
//  4. The store, which is not this package's.
package queue
