package storetest

import (
	"bufio"
	"context"
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
	s, err := b.Open(url, time.Now)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var lines sync.Mutex
	var wg sync.WaitGroup
	for w := range victimWriters {
		wg.Go(func() {
			for n := 0; ; n++ {
				job := draft(n, bulk)
				job.ID = fmt.Sprintf("job_%d_%d_%d", os.Getpid(), w, n)
				_, err := s.CreateJob(context.Background(), job, aviary.QueueLimits{})
				if err == nil && n%3 == 2 {
					err = liveALittle(s)
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

// liveALittle takes some job through an attempt.
func liveALittle(s aviary.Store) error {
	tickets, err := s.Dispatch(context.Background(), bulk, 1)
	for _, ticket := range tickets {
		if _, err = work(context.Background(), s, ticket, "victim"); err != nil {
			return err
		}
	}
	return err
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
		s := got(b.Open(url, time.Now))(t)
		there := map[string]bool{}
		for _, id := range idsOf(allJobs(t, s, aviary.JobQuery{Limit: 200})) {
			there[id] = true
		}
		for id := range acknowledged {
			if !there[id] {
				t.Errorf("job %s was acknowledged before the kill and is not there", id)
			}
		}
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
