package api_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

func TestCapacity(t *testing.T) {
	t.Parallel()
	formats := []aviary.Format{{Name: "WAV", Decoder: "built in", Available: true}, {Name: "M4A (AAC)", Decoder: "ffmpeg"}}
	r := start(t, func(r *rig) {
		r.config.Formats = formats
		r.intake.Limits.Queue = aviary.QueueLimits{Jobs: 7, Audio: 90 * time.Second, TenantJobs: 5, TenantAudio: time.Minute}
		r.intake.Rate = func() (float64, bool) { return 2, true }
		r.store.backlog.Running = aviary.Amount{Jobs: 1, Audio: 30 * time.Second}
		r.intake.Decoding = make(chan struct{}, 3)
	})
	var c api.Capacity
	a := r.get("/v1/capacity")
	if err := json.Unmarshal([]byte(a.body), &c); err != nil || a.status != 200 {
		t.Fatalf("%d, %v: %s", a.status, err, a.body)
	}
	want := api.Limits{AudioSeconds: 3600, UploadBytes: 1 << 20, QueueJobs: 7, QueueAudioSeconds: 90, TenantJobs: 5, TenantAudioSeconds: 60, Decodes: 3}
	if c.Object != "capacity" || c.Limits != want || !slices.Equal(c.Formats, formats) {
		t.Errorf("%+v, want %+v and %v", c, want, formats)
	}
	if *c.AudioSecondsPerSecond != 2 || *c.ExpectedWaitSeconds != 15 {
		t.Errorf("throughput: %s", a.body)
	}
	r.get("/v1/capacity?x=1").problem(t, 422, aviary.CodeOptionUnknown)
}
