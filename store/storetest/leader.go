package storetest

import (
	"testing"
	"time"
)

func testLeader(t *testing.T, b Backend) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		"a term":                    testTerm,
		"a term that is renewed":    testRenewal,
		"a term that is given back": testResign,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fresh(t, b))
		})
	}
}

func (f *fixture) lead(holder string) bool {
	f.Helper()
	return got(f.Lead(f.Context(), holder, time.Minute))(f)
}

func testTerm(t *testing.T, f *fixture) {
	same(t, "the first leads", f.lead("a"), true)
	same(t, "a second one does not", f.lead("b"), false)
	f.clock.Advance(time.Minute - time.Microsecond)
	same(t, "nor just before the end of the term", f.lead("b"), false)
	f.clock.Advance(time.Microsecond)
	same(t, "but then", f.lead("b"), true)
	same(t, "the first, coming back", f.lead("a"), false)
}

func testRenewal(t *testing.T, f *fixture) {
	for range 5 {
		same(t, "the leader", f.lead("a"), true)
		f.clock.Advance(time.Minute - time.Second)
		same(t, "another one", f.lead("b"), false)
	}
	f.clock.Advance(time.Hour)
	same(t, "the leader, late, while nobody has come", f.lead("a"), true)
	same(t, "another one, after that", f.lead("b"), false)
}

func testResign(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.must(f.Resign(ctx, "a")) // of what it never had
	f.lead("a")
	f.must(f.Resign(ctx, "b"))
	same(t, "after somebody else resigned", f.lead("b"), false)
	f.must(f.Resign(ctx, "a"))
	f.must(f.Resign(ctx, "a")) // twice is harmless
	same(t, "after the leader resigned", f.lead("b"), true)
	f.must(f.Resign(ctx, "a"))
	same(t, "after the old leader resigned once more", f.lead("a"), false)
}
