package queue

// window says how many tickets of a class may be handed over and unclaimed, for each device. Small is fair, since what comes next is decided late: behind
// 200 tickets of one tenant, another's first job would wait for all of them. But a device that finishes 30 short jobs a second would wait for the next
// pass of the dispatcher. So the window starts small, doubles when it ran dry between two passes although more waited, and shrinks
// when it did not for a while.
type window struct {
	least, most int // per device

	size int  // per device, now
	left bool // the last pass filled the window, and left more waiting
	calm int  // passes since the window was last used well
}

func newWindow(least, most int) *window { return &window{least: least, most: most, size: least} }

// calmPasses is how many passes in a row must show that a smaller window would do before it shrinks, since more than half of its tickets were still out or no
// more jobs waited: growing is urgent, and shrinking is not.
const calmPasses = 10

// look takes what a pass finds: how many tickets are out, for how many devices. dry says that devices may have waited since the last pass.
func (w *window) look(out, devices int) (dry bool) {
	room := w.size * devices
	switch {
	case w.left && out <= room/4:
		w.size, w.calm = min(2*w.size, w.most), 0
		return true
	case !w.left || out > room/2:
		w.calm++
	default:
		w.calm = 0
	}
	if w.calm >= calmPasses {
		w.size, w.calm = max(w.size/2, w.least), 0
	}
	return false
}

// filled takes what the pass did: whether the window is full and more may wait.
func (w *window) filled(left bool) { w.left = left }
