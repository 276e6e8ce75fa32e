package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func testLists(t *testing.T, b Backend) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		"order":                testListOrder,
		"while rows come in":   testListWhileInserting,
		"labels":               testListLabels,
		"what cannot be asked": testListRefusals,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			test(t, f)
		})
	}
}

func idsOf(list []aviary.Job) []string {
	ids := make([]string, len(list))
	for i, j := range list {
		ids[i] = j.ID
	}
	return ids
}

func reversed(list []string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[len(list)-1-i] = v
	}
	return out
}

func testListOrder(t *testing.T, f *fixture) {
	ctx := t.Context()
	same(t, "jobs of an empty store", len(allJobs(t, f.Store, aviary.JobQuery{Limit: 10})), 0)
	var all, odd []string
	for n := range 11 {
		job := f.create(aviary.Priorities()[n%2])
		all = append(all, job.ID)
		if n%2 == 1 {
			odd = append(odd, job.ID)
			got(f.Cancel(ctx, job.ID))(t)
		} else {
			f.clock.Advance(time.Second) // so that pairs share a time
		}
	}
	middle := f.job(all[4]).CreatedAt
	for _, limit := range []int{1, 2, 5, 10, 11, 12, 200} {
		page := aviary.JobQuery{Limit: limit}
		same(t, "newest first", idsOf(allJobs(t, f.Store, page)), reversed(all))
		page.States = []aviary.State{aviary.StateCanceled, aviary.StateExpired, aviary.StateCanceled}
		same(t, "canceled, newest first", idsOf(allJobs(t, f.Store, page)), reversed(odd))
		page.Ascending = true
		same(t, "canceled, oldest first", idsOf(allJobs(t, f.Store, page)), odd)
		page.States = []aviary.State{aviary.StateQueued, aviary.StateCanceled}
		same(t, "two states, oldest first", idsOf(allJobs(t, f.Store, page)), all)
		page.CreatedAfter = middle
		same(t, "two states, created later, oldest first", idsOf(allJobs(t, f.Store, page)), all[5:])
		page.States, page.Ascending = nil, false
		same(t, "created later, newest first", idsOf(allJobs(t, f.Store, page)), reversed(all[5:]))
		page.States = []aviary.State{aviary.StateRunning}
		same(t, "running", len(allJobs(t, f.Store, page)), 0)
	}
	full := got(f.Jobs(ctx, aviary.JobQuery{Limit: 11}))(t)
	same(t, "cursor of a page that is full and the last", full.Next, "")
	same(t, "whole rows", full.Jobs[0], f.job(all[10]))
}

// Pages in ascending order see every job once, also those that come in on the way; in descending order they see what was there.
func testListWhileInserting(t *testing.T, f *fixture) {
	ctx := t.Context()
	var all []string
	for range 10 {
		all = append(all, f.create(bulk).ID)
		f.clock.Advance(time.Millisecond)
	}
	before := reversed(all)
	up, down := aviary.JobQuery{Limit: 3, Ascending: true}, aviary.JobQuery{Limit: 3}
	var seenUp, seenDown []string
	for range 3 {
		pageUp, pageDown := got(f.Jobs(ctx, up))(t), got(f.Jobs(ctx, down))(t)
		seenUp, seenDown = append(seenUp, idsOf(pageUp.Jobs)...), append(seenDown, idsOf(pageDown.Jobs)...)
		up.After, down.After = pageUp.Next, pageDown.Next
		all = append(all, f.create(interactive).ID)
	}
	seenUp = append(seenUp, idsOf(allJobs(t, f.Store, up))...)
	seenDown = append(seenDown, idsOf(allJobs(t, f.Store, down))...)
	same(t, "oldest first", seenUp, all)
	same(t, "newest first", seenDown, before)
}

func testListLabels(t *testing.T, f *fixture) {
	ctx := t.Context()
	var red, redBig []string
	for n := 1; n <= 12; n++ {
		job := draft(n, bulk)
		job.Options.Labels = map[string]string{"n": fmt.Sprint(n), "color": "blue"}
		if n%2 == 0 {
			job.Options.Labels["color"] = "red"
			red = append(red, job.ID)
		}
		if n%3 == 0 {
			job.Options.Labels["size"] = "big"
		}
		if n%6 == 0 {
			redBig = append(redBig, job.ID)
		}
		got(f.CreateJob(ctx, job, aviary.QueueLimits{}))(t)
		f.clock.Advance(time.Second)
	}
	got(f.Cancel(ctx, red[1]))(t)
	for _, limit := range []int{1, 2, 5, 200} {
		for name, c := range map[string]struct {
			q    aviary.JobQuery
			want []string
		}{
			"one label":             {aviary.JobQuery{Labels: map[string]string{"color": "red"}}, red},
			"two labels":            {aviary.JobQuery{Labels: map[string]string{"size": "big", "color": "red"}}, redBig},
			"a label and states":    {aviary.JobQuery{Labels: map[string]string{"color": "red"}, States: []aviary.State{"canceled", "failed"}}, red[1:2]},
			"a label and a time":    {aviary.JobQuery{Labels: map[string]string{"color": "red"}, CreatedAfter: f.job(red[2]).CreatedAt}, red[3:]},
			"a value nobody has":    {aviary.JobQuery{Labels: map[string]string{"color": "re"}}, nil},
			"a value nobody can":    {aviary.JobQuery{Labels: map[string]string{"color": "red\x00"}}, nil},
			"a key nobody can have": {aviary.JobQuery{Labels: map[string]string{"\xff": "red"}}, nil},
			"a label nobody has":    {aviary.JobQuery{Labels: map[string]string{"mood": "red"}}, nil},
			"one that two have not": {aviary.JobQuery{Labels: map[string]string{"n": "1", "color": "red"}}, nil},
		} {
			c.q.Limit, c.q.Ascending = limit, true
			same(t, name, idsOf(allJobs(t, f.Store, c.q)), append([]string{}, c.want...))
			c.q.Ascending = false
			same(t, name+", newest first", idsOf(allJobs(t, f.Store, c.q)), reversed(c.want))
		}
	}
}

func testListRefusals(t *testing.T, f *fixture) {
	job := f.create(bulk)
	for name, q := range map[string]aviary.JobQuery{
		"no limit":          {},
		"a negative limit":  {Limit: -1},
		"a limit too large": {Limit: 201},
		"an unknown cursor": {Limit: 1, After: job.ID + "x"},
		"no cursor at all":  {Limit: 1, After: job.ID + "\x00"},
	} {
		_, err := f.Jobs(t.Context(), q)
		same(t, name, kind(err), string(aviary.CodeOptionInvalid))
	}
}
