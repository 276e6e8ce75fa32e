// Package bench measures the whole path of a job but for the device's work, beside what plain asynq does on the same machine with the same Redis: accepting,
// claimed to finished, the latency of a start, and the memory of Redis. It holds benchmarks only, here because store and queue may not know each other.
//
// The numbers are of one machine at one time; only those of one run can be compared. Run it alone, and each benchmark with a number of jobs:
//
//	go test ./cmd/internal/bench -run '^$' -bench Accept -benchtime 5000x
//	go test ./cmd/internal/bench -run '^$' -bench Process -benchtime 5000x
//	go test ./cmd/internal/bench -run '^$' -bench Latency -benchtime 200x
//	go test ./cmd/internal/bench -run '^$' -bench Memory -benchtime 1x
//
// With -short, backlogs are a hundredth of their size: enough to see that it works. Redis writes an append-only file and syncs it each second, unless a name
// says otherwise; databases sync each commit, as in production.
package bench
