package asr

import (
	"math"
	"os"
	"regexp"
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
)

// TestGivenCheckpoint transcribes 30 s with the checkpoint named by AVIARY_TEST_CHECKPOINT, a real one or one of tools/randmodel, and holds
// every stage to be finite. It reports speed and memory.
func TestGivenCheckpoint(t *testing.T) {
	path := os.Getenv("AVIARY_TEST_CHECKPOINT")
	if path == "" {
		t.Skip("AVIARY_TEST_CHECKPOINT names no checkpoint")
	}
	o := Options{}
	if os.Getenv("AVIARY_TEST_DTYPE") == "bfloat16" {
		o.DType = ml.BFloat16
	}
	e := open(t, path, cpu.New(cpu.Options{}), o)
	e.session.Hooks.Dump = func(stage string, _, _ int, v []float32) {
		for _, x := range v {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("%s has %v", stage, x)
			}
		}
	}
	pcm := tones(30 * second)
	r, err := e.Run(t.Context(), pcm, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	e.session.Hooks.Dump = nil
	t.Logf("%d tokens, %v, RTFx %.2f", len(r.Tokens), r.Timings, pcm.Duration().Seconds()/r.Timings.Total.Seconds())
	t.Logf("predicted %+v, held %+v, resident at most %s", r.Plan.Memory, e.Memory(), residentPeak())
}

// residentPeak is what Linux says about this process.
func residentPeak() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	return string(regexp.MustCompile(`VmHWM:.*`).Find(status))
}
