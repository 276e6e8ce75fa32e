package queue

import "time"

// brake notices that attempts are lost all over: then it is the fleet and not the jobs, and each further job would only come nearer to its quarantine. It
// judges by what was lost and what succeeded in the last brakeSpan, as the store counts it: whoever noticed a loss, the worker itself, its successor or a
// sweeper. It is not safe for concurrent use.
type brake struct {
	points []brakePoint // the oldest is the last one that is at least brakeSpan old, if there is one
	on     bool
}

// brakePoint is what has been counted until a time.
type brakePoint struct {
	at              time.Time
	lost, succeeded int
}

const (
	brakeSpan = 5 * time.Minute
	// brakeLost is how many attempts must be lost at least: a few say nothing about a fleet.
	brakeLost = 10
	// brakeShare is the share of the lost among the attempts that ended, above which the brake is on: one in so many.
	brakeShare = 5
)

// observe takes how many attempts were ever lost, and how many jobs have ever succeeded. It returns whether the brake is on. The first look only
// tells where counting begins.
func (b *brake) observe(now time.Time, lost, succeeded int) bool {
	b.points = append(b.points, brakePoint{at: now, lost: lost, succeeded: succeeded})
	old := 0
	for old+1 < len(b.points) && now.Sub(b.points[old+1].at) >= brakeSpan {
		old++
	}
	b.points = b.points[old:]
	gone := lost - b.points[0].lost
	ended := gone + max(succeeded-b.points[0].succeeded, 0)
	b.on = gone >= brakeLost && gone*brakeShare > ended
	return b.on
}
