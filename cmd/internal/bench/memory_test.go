package bench

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// BenchmarkMemory is what Redis needs while a million jobs wait: ours, of which Redis holds what four devices need next; and plain tasks, with nothing but
// the job's id in them, as one of ours has, and with 300 bytes.
func BenchmarkMemory(b *testing.B) {
	jobs := backlog(1_000_000)
	b.Run("aviary", func(b *testing.B) {
		s := databases[0].openStore(b, jobs)
		socket := startRedis(b, "everysec")
		measureMemory(b, socket, jobs, func() {
			claimed, release := make(chan struct{}), make(chan struct{})
			startAviary(b, socket, &idler{store: s, started: func(aviary.Job) {
				select {
				case claimed <- struct{}{}:
				case <-release:
				}
				<-release
			}}, 4)
			b.Cleanup(func() { close(release) }) // before the worker is stopped
			for range 4 {
				<-claimed
			}
			settle(b, s)
		})
	})
	for name, body := range map[string]func(id string) []byte{
		"asynq/payload=id":    func(id string) []byte { return []byte(id) },
		"asynq/payload=300 B": payload,
	} {
		b.Run(name, func(b *testing.B) {
			socket := startRedis(b, "everysec")
			client := plainClient(b, socket)
			measureMemory(b, socket, jobs, func() {
				atOnce(b, jobs, func(n int) error {
					id := fmt.Sprint("job_", n)
					return enqueue(client, id, "bulk", body(id))
				})
			})
		})
	}
}

// settle waits until no more jobs are handed over.
func settle(b *testing.B, s aviary.Store) {
	b.Helper()
	for last, since := -1, time.Now(); time.Since(since) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		n, err := s.Dispatched(b.Context(), aviary.PriorityBulk)
		if err != nil {
			b.Fatal(err)
		}
		if n != last {
			last, since = n, time.Now()
		}
	}
}

// measureMemory reports by how much the memory that Redis uses grows while something is done.
func measureMemory(b *testing.B, socket string, jobs int, do func()) {
	b.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	b.Cleanup(func() { _ = client.Close() })
	used := func() float64 {
		info, err := client.Info(b.Context(), "memory").Result()
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "used_memory:")
		text, _, _ := strings.Cut(rest, "\r\n")
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	before := used()
	do()
	grown := used() - before
	b.ReportMetric(grown/(1<<20), "MiB")
	b.ReportMetric(grown/float64(jobs), "B/job")
	b.ReportMetric(0, "ns/op")
}
