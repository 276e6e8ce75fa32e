package aviary

import (
	"slices"
	"sync"
	"time"
)

// pace is how long a device took for a recording.
type pace struct {
	audio, took time.Duration
	mode        AttentionMode // full or local
}

// paces are the newest ones of each device, for run limits.
type paces struct {
	mu     sync.Mutex
	newest map[string][]pace
}

// recentPaces is how many are kept for each device: enough for the slow ones among them to be found, few enough to forget a slow hour.
const recentPaces = 16

func (p *paces) add(device string, a pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newest == nil {
		p.newest = map[string][]pace{}
	}
	p.newest[device] = append(p.newest[device], a)
	if over := len(p.newest[device]) - recentPaces; over > 0 {
		p.newest[device] = slices.Delete(p.newest[device], 0, over)
	}
}

func (p *paces) of(device string) []pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.newest[device])
}

// The parts of a run limit.
const (
	coldStart  = 10 * time.Minute // of a device whose speed is not known for such a recording
	coldFactor = 10               // times the audio: slower devices are not worth having
	warmStart  = 30 * time.Second // of others: reading and decoding the recording, and a bad moment of the storage
	warmFactor = 3                // times what it took before
)

// runLimit is how long an attempt at a recording may take on a device that did the seen ones. It is there for work that goes on for ever and gives
// signs of life; it may never hit work that is merely slow. So the slowest pace counts, three times over, and only a pace that says something about
// this recording:
//
//   - The cost of a second grows with the length of the recording in full attention, at most in proportion, and does not in local attention. So a run in
//     full attention is a measure for recordings up to twice as long, at a cost that grows with the length, in whatever mode they run: local
//     attention is not slower.
//   - A run in local attention is a measure for recordings that ask for local attention, and, unless they ask for full, for those that are at least as
//     long: what auto does to a recording it does to longer ones.
//
// Without such a pace the device is cold, and has 10 minutes and ten times the audio, or what its linear pace for other recordings asks for, if that is
// more. There is no upper bound: a CPU that needs 86 minutes for an hour of audio is no fault.
func runLimit(audio time.Duration, asked AttentionMode, floor time.Duration, seen []pace) time.Duration {
	var expected time.Duration
	known := false
	for _, s := range seen {
		if s.audio <= 0 {
			continue
		}
		ratio := float64(audio) / float64(s.audio)
		growth := 1.0
		if s.mode == AttentionLocal {
			known = known || asked == AttentionLocal || asked != AttentionFull && audio >= s.audio
		} else {
			known = known || audio <= 2*s.audio
			growth = min(max(ratio, 1), 2)
		}
		expected = max(expected, time.Duration(float64(s.took)*ratio*growth))
	}
	limit := warmStart + warmFactor*expected
	if !known {
		limit = max(limit, coldStart+coldFactor*audio)
	}
	return max(limit, floor)
}
