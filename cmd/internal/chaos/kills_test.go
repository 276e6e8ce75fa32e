//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/models"
)

// TestKillServe kills the whole system in one process, as `aviary serve` runs it: embedded Redis, SQLite, the real engine with the bundled model. It is started again
// each time, under load all the while. Every job that was accepted ends with the right text.
func TestKillServe(t *testing.T) {
	t.Parallel()
	kills := 2
	if rounds() > 1 {
		kills = 20
	}
	r := chance(t, 0)
	f := newFleet(t, func(f *fleet) { // its parts are those of the one process
		f.database = "sqlite:" + filepath.Join(f.folder, "all", "aviary.db")
		f.blobURL = "file:" + filepath.Join(f.folder, "all", "blobs")
		f.redisURL = "embedded"
	})
	p := f.add("all", "all", child{Real: true})
	p.start()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := &callers{t: t, p: p, speech: digits(t), wants: map[string]string{}}
	for range 3 {
		c.wg.Go(func() { c.call(ctx) })
	}
	for i := range kills {
		p.await(patience, fmt.Sprintf("run %d listens", i+1), func() bool {
			return slices.ContainsFunc(p.lines, func(l line) bool { return l.Run == i+1 && l.Msg == "the API listens" })
		})
		time.Sleep(between(r, 100*time.Millisecond, 2*time.Second)) // the random moment
		p.crash()
		p.await(patience, "it is dead", func() bool { return len(p.exits) == i+1 })
	}
	p.said(patience, "the API listens")
	stop()
	c.wg.Wait()
	f.settle(5 * time.Minute)
	f.verifyKeeping(c.posted)
	lost := 0
	for id, want := range c.wants {
		job, err := f.store.Job(context.Background(), id)
		if err != nil || job.State != aviary.StateSucceeded {
			t.Errorf("%s: %+v, %v", id, job, err)
			continue
		}
		lost += job.Lost
		got, err := f.store.Transcript(context.Background(), id)
		if err != nil || got.Text != want {
			t.Errorf("%s says %q instead of %q, %v", id, got.Text, want, err)
		}
	}
	t.Logf("%d kills, %d jobs accepted, %d attempts lost", kills, len(c.wants), lost)
}

// callers submit recordings, each until it is accepted.
type callers struct {
	t      *testing.T
	p      *process
	speech []utterance
	wg     sync.WaitGroup

	mu     sync.Mutex
	posted int
	wants  map[string]string // the right text, by job
}

// call goes on until ctx ends.
func (c *callers) call(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		c.posted++
		n, said := c.posted, c.speech[c.posted%len(c.speech)]
		c.mu.Unlock()
		id, err := said.submit(c.t.Context(), c.p, "key-"+strconv.Itoa(n))
		if err != nil {
			c.t.Error(err)
			return
		}
		c.mu.Lock()
		if _, twice := c.wants[id]; twice {
			c.t.Errorf("two requests have the job %s", id)
		}
		c.wants[id] = said.text
		c.mu.Unlock()
	}
}

// verifyKeeping holds the invariants to a system with an embedded Redis, which had so many requests.
func (f *fleet) verifyKeeping(requests int) {
	f.t.Helper()
	w := f.world()
	w.debris = func() ([]string, error) { return nil, nil } // it is in the other process
	found, err := verify(context.Background(), w)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, v := range found {
		f.t.Error(v)
	}
	if n := f.count("SELECT count(*) FROM jobs"); n > requests {
		f.t.Errorf("%d requests made %d jobs", requests, n)
	}
}

// utterance is a recording of a person that says a digit.
type utterance struct {
	wav  []byte
	text string
}

// digits are short recordings, cut from a bundled one, whose text the engine is known to hear.
func digits(t *testing.T) []utterance {
	t.Helper()
	whole, err := fs.ReadFile(models.SampleFiles(), "george-5-8k.wav")
	if err != nil {
		t.Fatal(err)
	}
	samples, err := models.Samples()
	if err != nil {
		t.Fatal(err)
	}
	list := []utterance{{cutWAV(whole, 1300*time.Millisecond), "two"}} // as in the tests of package cli
	for _, s := range samples {
		b, err := fs.ReadFile(models.SampleFiles(), s.Name)
		if err != nil {
			t.Fatal(err)
		}
		if s.Seconds < 6 {
			list = append(list, utterance{b, s.Text})
		}
	}
	return list
}

// cutWAV is the beginning of a recording of 16 bits at 8 kHz, whose header has 44 bytes.
func cutWAV(whole []byte, length time.Duration) []byte {
	const header, bytesPerSecond = 44, 16000
	b := bytes.Clone(whole[:header+int(length.Seconds()*bytesPerSecond)])
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
	binary.LittleEndian.PutUint32(b[header-4:], uint32(len(b)-header))
	return b
}

// submit posts it until it is accepted, each time with the same key.
func (u utterance) submit(ctx context.Context, p *process, key string) (id string, err error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		a, err := ask(ctx, "POST", p.lastURL()+"/v1/jobs?name="+key, map[string][]string{"Idempotency-Key": {key}}, u.wav)
		if err == nil && a.accepted() {
			return a.job.ID, nil
		}
		if err == nil && a.status < 500 && a.status != 409 && a.status != 429 || time.Now().After(deadline) {
			return "", fmt.Errorf("post %s: %d %s, %w", key, a.status, a.body, err)
		}
	}
}

// lastURL is where an API process listens, or has listened.
func (p *process) lastURL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.lines) - 1; i >= 0; i-- {
		if p.lines[i].Msg == "the API listens" {
			return strings.TrimSuffix(p.lines[i].URL, "/")
		}
	}
	return "http://127.0.0.1:1"
}
