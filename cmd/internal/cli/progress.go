package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows how a batch of jobs gets on: a bar of audio on a terminal, a line every 30 seconds elsewhere. Counters are for display.
type progress struct {
	mu          sync.Mutex
	began       time.Time
	total       int
	done        int
	failed      int
	audioTotal  time.Duration
	audioDone   time.Duration
	audioAtWork map[string]time.Duration // of jobs that run now, by id

	stop  func()
	lines io.Writer
}

const progressInterval = 30 * time.Second

// newProgress shows the progress of total files on the error stream until stop is called.
func (a *app) newProgress(total int) *progress {
	p := &progress{began: time.Now(), total: total, audioAtWork: map[string]time.Duration{}, lines: a.Err}
	if a.Terminal(a.Err) {
		p.stop = p.bar(a.Err, !a.color())
		return p
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintln(a.Err, p.line())
			case <-quit:
				return
			}
		}
	}()
	p.stop = sync.OnceFunc(func() { close(quit); <-gone })
	return p
}

// color follows NO_COLOR (no-color.org).
func (a *app) color() bool { v, set := a.Lookup("NO_COLOR"); return !set || v == "" }

func (p *progress) bar(w io.Writer, plain bool) func() {
	container := mpb.New(mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithAutoRefresh())
	style := mpb.BarStyle()
	if plain {
		style = style.Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]")
	}
	bar := container.New(1000, style, mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return p.line() + " " })))
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				bar.SetCurrent(min(999, p.perMille()))
			case <-quit:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-gone
		bar.SetCurrent(p.perMille())
		bar.Abort(false)
		container.Wait()
	})
}

func (p *progress) audio(d time.Duration) { p.with(func() { p.audioTotal += d }) }

func (p *progress) running(id string, done time.Duration) {
	p.with(func() { p.audioAtWork[id] = done })
}

// ended moves a job's audio to what is done.
func (p *progress) ended(id string, audio time.Duration) {
	p.with(func() {
		delete(p.audioAtWork, id)
		p.audioDone += audio
	})
}

// finish counts a file, once.
func (p *progress) finish(ok bool) {
	p.with(func() {
		p.done++
		if !ok {
			p.failed++
		}
	})
}

func (p *progress) with(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *progress) heard() time.Duration {
	sum := p.audioDone
	for _, d := range p.audioAtWork {
		sum += d
	}
	return sum
}

func (p *progress) perMille() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == p.total || p.audioTotal == 0 {
		return int64(1000 * p.done / max(1, p.total))
	}
	return int64(1000 * p.heard() / p.audioTotal)
}

// line says files, audio, speed and, once it can be told, the time left.
func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(p.began)
	heard := p.heard()
	rtfx := heard.Seconds() / max(took.Seconds(), 1e-3)
	s := fmt.Sprintf("%d/%d files, %s/%s of audio, RTFx %.1f", p.done, p.total, clock(heard), clock(p.audioTotal), rtfx)
	if p.failed > 0 {
		s += fmt.Sprintf(", %d failed", p.failed)
	}
	if left := p.audioTotal - heard; heard > 0 && left > 0 {
		s += ", " + clock(time.Duration(float64(left)/rtfx)) + " left"
	}
	return s
}

// clock prints h:mm:ss or m:ss.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
