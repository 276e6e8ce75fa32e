package aviary_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
)

// A storage that hangs ends the process as a device does, but is no fault of the recording, nor of the device; a decoder that hangs is one of the recording.
func TestAHangIsBlamedOnWhatHangs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		attempt  int
		hangs    string
		code     aviary.Code
		lost     bool
		charge   bool
		inDevice bool
	}{
		{"opening", 1, "open", aviary.CodeInternal, false, false, false},
		{"reading", 2, "read", aviary.CodeInternal, false, false, false},
		{"closing", 3, "close", aviary.CodeInternal, false, false, false},
		{"reading, for too long", 9, "read", aviary.CodeInternal, false, true, false},
		{"decoding", 1, "decode", aviary.CodeAttemptTimeout, true, false, false},
		{"transcribing", 1, "device", aviary.CodeAttemptTimeout, true, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &ledger{job: aviary.Job{Attempt: tt.attempt, AudioKey: "job_1.flac"}}
				r, w, _ := watchedRunner(l)
				free, hung := make(chan struct{}), make(chan aviary.Hang, 1)
				r.Hung = func(h aviary.Hang) { hung <- h }
				at := func(place string) {
					if place == tt.hangs {
						<-free
					}
				}
				r.Blobs, r.Prober = slowShelf{at: at}, slowDecoder{at: at}
				returned := make(chan error)
				go func() {
					returned <- r.Run(t.Context(), ticket, device(func(context.Context, func(time.Duration)) (aviary.Transcript, error) {
						at("device")
						return aviary.Transcript{}, nil
					}))
				}()
				if h := <-hung; h.InDevice != tt.inDevice || h.Device != "cpu" || h.JobID != ticket.JobID || h.Why == nil {
					t.Errorf("hung: %+v", h)
				}
				if f := l.failure; f.Problem.Code != tt.code || !f.Retry || f.Lost != tt.lost || f.Charge != tt.charge {
					t.Errorf("failure %+v of %+v", f, f.Problem)
				}
				if lost := w.ends[0].Outcome == aviary.OutcomeLost; lost != tt.lost {
					t.Errorf("observed %+v", w.ends[0])
				}
				close(free)
				<-returned
			})
		})
	}
}

// slowShelf and slowDecoder tell where they are, and wait there for as long as at does.
type slowShelf struct {
	aviary.Blobs
	at func(place string)
}

func (s slowShelf) Open(context.Context, string) (aviary.Blob, error) {
	s.at("open")
	return slowBlob{s.at}, nil
}

type slowBlob struct{ at func(place string) }

func (b slowBlob) ReadAt(p []byte, _ int64) (int, error) { b.at("read"); return len(p), nil }
func (b slowBlob) Close() error                          { b.at("close"); return nil }
func (slowBlob) Size() int64                             { return 1 }

type slowDecoder struct {
	aviary.Prober
	at func(place string)
}

func (d slowDecoder) Decode(_ context.Context, r io.ReaderAt, _ int64, _ time.Duration) (aviary.PCM, error) {
	if _, err := r.ReadAt(make([]byte, 1), 0); err != nil {
		return nil, err
	}
	d.at("decode")
	return nil, nil
}
