package queue

import "testing"

func TestWindow(t *testing.T) {
	t.Parallel()
	const devices = 2
	// full is a pass that fills the window and leaves more waiting, after out tickets were left of it.
	full := func(w *window, out int) bool {
		dry := w.look(out, devices)
		w.filled(true)
		return dry
	}
	w := newWindow(2, 64)
	if full(w, 0) || w.size != 2 {
		t.Fatalf("the first pass, with nothing before it: size %d", w.size)
	}
	for _, want := range []int{4, 8, 16, 32, 64, 64} {
		if !full(w, 0) || w.size != want {
			t.Fatalf("after it ran dry: size %d, want %d", w.size, want)
		}
	}
	if !full(w, 64*devices/4) {
		t.Error("a quarter left is nearly dry")
	}
	if full(w, 64*devices/4+1) || w.size != 64 {
		t.Error("more than a quarter left is not dry")
	}
	for i := range calmPasses {
		if w.size != 64 {
			t.Fatalf("it shrank after %d calm passes", i)
		}
		full(w, 64*devices)
	}
	if w.size != 32 {
		t.Errorf("after calm passes: size %d", w.size)
	}
	for range 20 * calmPasses {
		full(w, w.size*devices)
	}
	if w.size != 2 {
		t.Errorf("after many calm passes: size %d", w.size)
	}
	if full(w, 0); w.size != 4 {
		t.Errorf("it grows again: size %d", w.size)
	}
	for range 4 * calmPasses { // all that waited has been handed over, and is taken
		w.look(0, devices)
		w.filled(false)
	}
	if w.size != 2 {
		t.Errorf("with nothing waiting: size %d", w.size)
	}
	if w.look(0, devices) {
		t.Error("it ran dry because nothing waited, which is no reason")
	}
	// One that is used well, neither dry nor half full, stays.
	w = newWindow(2, 64)
	full(w, 0)
	full(w, 0)
	for range 5 * calmPasses {
		full(w, 4*devices/2)
	}
	if w.size != 4 {
		t.Errorf("used well: size %d", w.size)
	}
}
