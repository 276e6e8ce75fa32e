package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// victimVariable makes a test binary play the process to be killed, on the database that it names: see Main.
const victimVariable = "AVIARY_STORETEST_VICTIM"

const victimWriters = 4

// playVictim accepts jobs, and works on some, as fast as it can, and prints the id of each job whose creation was acknowledged. It ends by being killed.
func playVictim(b Backend, url string) {
	s, err := b.Open(url, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var lines sync.Mutex
	var wg sync.WaitGroup
	for w := range victimWriters {
		wg.Go(func() {
			for n := 0; ; n++ {
				job := named(draft(n, bulk), fmt.Sprintf("job_%d_%d_%d", os.Getpid(), w, n))
				_, err := s.CreateJob(context.Background(), job, aviary.QueueLimits{})
				if err == nil && n%3 == 2 {
					_, err = liveALittle(context.Background(), s)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				lines.Lock()
				fmt.Println(job.ID)
				lines.Unlock()
			}
		})
	}
	wg.Wait()
}

// liveALittle takes some job through an attempt, and returns its id if it has succeeded by that.
func liveALittle(ctx context.Context, s aviary.Store) (succeeded string, err error) {
	tickets, err := handOver(ctx, s, bulk, 1)
	if err != nil || len(tickets) == 0 {
		return "", err
	}
	final, err := work(ctx, s, tickets[0], "victim")
	if !final || err != nil {
		return "", err
	}
	return tickets[0].JobID, nil
}

// RunCrash kills a process, several times, in the middle of writing: every job that it had been told was accepted is there afterwards, and nothing is
// half done. TestMain of the backend's tests must call Main with the same backend.
func RunCrash(t *testing.T, b Backend) {
	const rounds, most = 3, 40
	url := b.New(t)
	acknowledged := map[string]bool{}
	for round := range rounds {
		for _, id := range killVictim(t, url, most+round*7) {
			acknowledged[id] = true
		}
		if b.Settle != nil {
			b.Settle(t, url)
		}
		s := got(b.Open(url, nil))(t)
		there := checkThere(t, s, acknowledged)
		// What each writer had committed and not yet printed may be there too.
		if extra := len(there) - len(acknowledged); extra > (round+1)*victimWriters {
			t.Errorf("%d jobs are there, %d were acknowledged", len(there), len(acknowledged))
		}
		checkInvariants(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// killVictim starts the victim, kills it with SIGKILL once it has acknowledged n jobs, and returns all that it acknowledged.
func killVictim(t *testing.T, url string, n int) []string {
	t.Helper()
	exe := got(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), victimVariable+"="+url)
	cmd.Stderr = os.Stderr
	out := got(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		ids = append(ids, lines.Text())
		if len(ids) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(ids) < n {
		t.Fatalf("the process ended by itself after %d jobs: %v", len(ids), err)
	}
	return ids
}

// checkThere fails the test for each acknowledged job that is not there, and returns those that are.
func checkThere(t *testing.T, s aviary.Store, acknowledged map[string]bool) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	for _, id := range idsOf(allJobs(t, s, aviary.JobQuery{Limit: 200})) {
		there[id] = true
	}
	for id := range acknowledged {
		if !there[id] {
			t.Errorf("job %s was acknowledged before the crash and is not there", id)
		}
	}
	return there
}

// ledger is what several writers have been told.
type ledger struct {
	mu                     sync.Mutex
	acknowledged, finished map[string]bool
	refused                int // calls that failed
}

func (l *ledger) note(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

func (l *ledger) accepted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acknowledged)
}

// RunServerCrash has writers accept jobs and work on them while the server of the database at url is crashed and started again, several times. They
// only see errors that say that the same call can succeed later. What they were told is so afterwards, and nothing is half done. crash
// returns when the server takes connections again.
func RunServerCrash(t *testing.T, b Backend, url string, crash func(t testing.TB)) {
	const rounds, each, writers = 3, 25, 4
	two := [2]aviary.Store{got(b.Open(url, nil))(t), got(b.Open(url, nil))(t)}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	l := &ledger{acknowledged: map[string]bool{}, finished: map[string]bool{}}
	over := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-ctx.Done():
					t.Error("the writers did not get on with it")
					return
				default:
				}
				if err := l.write(ctx, two[n%2], w, n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for round := range rounds {
		for want := (2*round + 1) * each; l.accepted() < want && ctx.Err() == nil && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		crash(t)
		for want := l.accepted() + each; l.accepted() < want && ctx.Err() == nil && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	close(over)
	wg.Wait()
	s := two[0]
	checkThere(t, s, l.acknowledged)
	for id := range l.finished {
		same(t, "state of a job whose transcript was acknowledged", got(s.Job(t.Context(), id))(t).State, aviary.StateSucceeded)
	}
	checkInvariants(t, s)
	for _, s := range two {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if l.refused == 0 {
		t.Error("no call failed: the server was not crashed in the middle of writing")
	}
	t.Logf("%d jobs were acknowledged, %d transcripts; %d calls failed", len(l.acknowledged), len(l.finished), l.refused)
}

// write makes a job, and takes some job through an attempt now and then. Its error is one that should not be.
func (l *ledger) write(ctx context.Context, s aviary.Store, writer, n int) error {
	job := named(draft(n, bulk), fmt.Sprintf("job_%d_%d", writer, n))
	_, err := s.CreateJob(ctx, job, aviary.QueueLimits{})
	if err == nil {
		l.note(func() { l.acknowledged[job.ID] = true })
	}
	if err == nil && n%3 == 2 {
		var id string
		if id, err = liveALittle(ctx, s); id != "" {
			l.note(func() { l.finished[id] = true })
		}
	}
	switch code := aviary.CodeOf(err); {
	case err == nil:
		return nil
	case code != aviary.CodeInternal && code != aviary.CodeStoreUnavailable || errors.Is(err, context.DeadlineExceeded):
		return err
	}
	l.note(func() { l.refused++ })
	time.Sleep(time.Millisecond) // it is away
	return nil
}
