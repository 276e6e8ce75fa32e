package aviary

import (
	"testing"
	"time"
)

func TestRunLimit(t *testing.T) {
	const floor = time.Minute
	full := func(audio, took time.Duration) pace { return pace{audio, took, AttentionFull} }
	local := func(audio, took time.Duration) pace { return pace{audio, took, AttentionLocal} }
	for _, tt := range []struct {
		name  string
		audio time.Duration
		asked AttentionMode
		seen  []pace
		want  time.Duration
	}{
		{"cold", time.Minute, "", nil, 20 * time.Minute},
		{"cold, an hour", time.Hour, AttentionFull, nil, 10*time.Hour + 10*time.Minute},
		{"warm", 10 * time.Minute, "", []pace{full(10*time.Minute, time.Minute)}, 30*time.Second + 3*time.Minute},
		{"the slowest counts", 10 * time.Minute, "", []pace{full(10*time.Minute, time.Second), full(10*time.Minute, time.Minute), full(10*time.Minute, time.Second)},
			30*time.Second + 3*time.Minute},
		{"the floor", time.Second, "", []pace{full(time.Minute, time.Second)}, floor},
		{"a CPU at RTFx 0.7", time.Hour, "", []pace{full(time.Hour, 86*time.Minute)}, 30*time.Second + 3*86*time.Minute},
		{"slower than a cold device may be", 10 * time.Minute, "", []pace{full(10*time.Minute, 10*time.Hour)}, 30*time.Second + 30*time.Hour},
		{"twice as long in full grows with the square", 20 * time.Minute, AttentionFull, []pace{full(10*time.Minute, time.Minute)}, 30*time.Second + 3*4*time.Minute},
		{"more than twice as long is not known", 21 * time.Minute, AttentionFull, []pace{full(10*time.Minute, time.Minute)}, 220 * time.Minute},
		{"and asks for more on a slow device", 40 * time.Minute, AttentionFull, []pace{full(10*time.Minute, 100*time.Minute)}, 30*time.Second + 3*800*time.Minute},
		{"local says nothing of full", 10 * time.Minute, AttentionFull, []pace{local(10*time.Minute, time.Second)}, 110 * time.Minute},
		{"full is enough for local", 10 * time.Minute, AttentionLocal, []pace{full(10*time.Minute, time.Minute)}, 30*time.Second + 3*time.Minute},
		{"local for local of any length", time.Hour, AttentionLocal, []pace{local(10*time.Minute, time.Minute)}, 30*time.Second + 18*time.Minute},
		{"auto that is longer than what ran in local does so too", time.Hour, AttentionAuto, []pace{local(10*time.Minute, time.Minute)}, 30*time.Second + 18*time.Minute},
		{"auto that is shorter may run in full", 9 * time.Minute, "", []pace{local(10*time.Minute, time.Minute)}, 100 * time.Minute},
		{"a job without audio tells nothing", time.Minute, "", []pace{full(0, time.Hour)}, 20 * time.Minute},
	} {
		if got := runLimit(tt.audio, tt.asked, floor, tt.seen); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Whatever a device did, doing it again, in the same mode and at half the speed, stays within the limit.
func TestRunLimitNeverHitsWhatWasSeen(t *testing.T) {
	for _, audio := range []time.Duration{time.Second, time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour} {
		for _, rtfx := range []float64{0.05, 0.7, 30, 1000} {
			took := time.Duration(float64(audio) / rtfx)
			for _, mode := range []AttentionMode{AttentionFull, AttentionLocal} {
				seen := []pace{{audio, took, mode}}
				if got := runLimit(audio, mode, 0, seen); got < 2*took {
					t.Errorf("%v at RTFx %v in %s: the limit %v is below %v", audio, rtfx, mode, got, 2*took)
				}
			}
		}
	}
}

func TestPacesForgetTheOldest(t *testing.T) {
	var p paces
	p.add("cpu", pace{time.Second, time.Hour, AttentionFull})
	for range recentPaces {
		p.add("cpu", pace{time.Second, time.Second, AttentionFull})
	}
	if list := p.of("cpu"); len(list) != recentPaces || list[0].took != time.Second {
		t.Errorf("%d paces, the first %v", len(list), list[0])
	}
	if len(p.of("cuda:0")) != 0 {
		t.Error("another device has them too")
	}
}
