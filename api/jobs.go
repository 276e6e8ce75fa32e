package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
)

// longestWait bounds ?wait.
const longestWait = 60 * time.Second

// find reads the job that a path names. A deleted one is CodeJobExpired, with its tombstone.
func (s *Server) find(ctx context.Context, r *http.Request) (aviary.Job, error) {
	const op = "api.job"
	id := r.PathValue("id")
	if !saneID(id, 64) {
		return aviary.Job{}, aviary.Errorf(aviary.CodeNotFound, op, "There is no such job.")
	}
	job, err := s.Store.Job(ctx, id)
	if err != nil {
		return aviary.Job{}, err
	}
	return job, gone(job)
}

// gone is the error of a deleted job, nil for any other.
func gone(job aviary.Job) error {
	if job.State != aviary.StateExpired {
		return nil
	}
	return &jobError{aviary.Errorf(aviary.CodeJobExpired, "api.job", "The job has been deleted; its audio and transcript are gone."), job}
}

// job answers with a job's state, at once or when it has changed.
func (s *Server) job(x *exchange, r *http.Request) error {
	query, err := params(r, "wait")
	if err != nil {
		return err
	}
	wait, err := waitOf(query.Get("wait"))
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(r.Context(), wait)
	defer cancel()
	return aviary.OutOfTime(r.Context(), opAnswer, s.awaitJob(ctx, x, r, wait))
}

func (s *Server) awaitJob(ctx context.Context, x *exchange, r *http.Request, wait time.Duration) error {
	job, err := s.find(ctx, r)
	if err != nil {
		return err
	}
	seen := r.Header.Get("If-None-Match")
	if wait > 0 && !job.State.Final() && (seen == "" || matches(seen, etagOf(job))) {
		if err := s.watcher.wait(ctx, job, wait, s.draining); err != nil {
			return err
		}
		if job, err = s.find(ctx, r); err != nil {
			return err
		}
	}
	return s.replyJob(ctx, x, job, seen)
}

func (s *Server) replyJob(ctx context.Context, x *exchange, job aviary.Job, seen string) error {
	out := newJob(job)
	var ahead time.Duration
	if job.State == aviary.StateQueued {
		jobs, audio, err := s.Store.QueueAhead(ctx, job)
		if err != nil {
			return err
		}
		ahead = audio
		out.Queue = &QueuePlace{Position: jobs + 1, AudioSecondsAhead: seconds(audio)}
	}
	s.jobHeaders(x, job, ahead)
	if matches(seen, etagOf(job)) {
		return x.empty(http.StatusNotModified)
	}
	return x.reply(http.StatusOK, out)
}

// jobHeaders sets what every answer with one job has. ahead is the audio before it, if that is known.
func (s *Server) jobHeaders(x *exchange, job aviary.Job, ahead time.Duration) {
	h := x.Header()
	h.Set("ETag", etagOf(job))
	h.Set("Cache-Control", "private, no-cache")
	if !job.State.Final() {
		h.Set("Retry-After", strconv.Itoa(wholeSeconds(s.pollAfter(job, ahead))))
	}
}

// pollAfter is when a look at the job may tell something new: a guess from the work before it and one worker's speed, 1 s to 30 s.
func (s *Server) pollAfter(job aviary.Job, ahead time.Duration) time.Duration {
	work := job.Audio.Duration - job.Progress
	if job.State == aviary.StateQueued {
		work = ahead + job.Audio.Duration
	}
	guess := time.Duration(float64(work) / s.WorkerRTFx)
	return min(max(guess, time.Second), 30*time.Second)
}

// etagOf names the job's version. It is weak, since the place in the queue changes without it.
func etagOf(job aviary.Job) string { return `W/"` + strconv.FormatInt(job.Version, 10) + `"` }

// matches says whether an If-None-Match lists the tag, by the weak comparison of RFC 9110.
func matches(list, tag string) bool {
	weak := func(s string) string { return strings.TrimPrefix(strings.TrimSpace(s), "W/") }
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool {
		return strings.TrimSpace(s) == "*" || weak(s) == weak(tag)
	})
}

// waitOf reads ?wait, in seconds.
func waitOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	number, err := strconv.ParseFloat(text, 64)
	d, ok := aviary.Seconds(number)
	if err != nil || !ok || d > longestWait {
		return 0, invalidParam("wait", "must be a number of seconds from 0 to 60")
	}
	return d, nil
}

// cancel stops a job, now or soon.
func (s *Server) cancel(x *exchange, r *http.Request) error {
	job, err := s.change(r, s.cancelJob)
	if err != nil {
		return err
	}
	s.jobHeaders(x, job, 0)
	if !job.State.Final() {
		return x.reply(http.StatusAccepted, newJob(job))
	}
	return x.reply(http.StatusOK, newJob(job))
}

// cancelJob cancels a job. One that waited comes to its end here, where no attempt will report it.
func (s *Server) cancelJob(ctx context.Context, id string) (aviary.Job, error) {
	before, err := s.Store.Job(ctx, id)
	if err != nil {
		return aviary.Job{}, err
	}
	job, err := s.Store.Cancel(ctx, id)
	if err == nil && job.State == aviary.StateCanceled && before.State == aviary.StateQueued {
		s.Metrics.canceledWaiting()
	}
	return job, err
}

// retry gives a failed or canceled job one more attempt.
func (s *Server) retry(x *exchange, r *http.Request) error {
	job, err := s.change(r, func(ctx context.Context, id string) (aviary.Job, error) { return s.Store.Retry(ctx, id) })
	if err != nil {
		return err
	}
	s.Intake.Waker.Wake()
	s.jobHeaders(x, job, 0)
	x.Header().Set("Location", jobPath(job.ID))
	return x.reply(http.StatusAccepted, newJob(job))
}

// change is a request that changes a job and takes no parameters.
func (s *Server) change(r *http.Request, act func(context.Context, string) (aviary.Job, error)) (aviary.Job, error) {
	if _, err := params(r); err != nil {
		return aviary.Job{}, err
	}
	before, err := s.find(r.Context(), r)
	if err != nil {
		return aviary.Job{}, err
	}
	job, err := act(r.Context(), before.ID)
	s.watcher.look(before.ID)
	var e *aviary.Error
	if errors.As(err, &e) && e.Code == aviary.CodeStateConflict {
		err = &jobError{e, before}
	}
	if err != nil {
		return aviary.Job{}, err
	}
	return job, gone(job)
}

// delete purges a job.
func (s *Server) delete(x *exchange, r *http.Request) error {
	query, err := params(r, "force")
	if err != nil {
		return err
	}
	force := false
	if text := query.Get("force"); text != "" {
		if force, err = strconv.ParseBool(text); err != nil {
			return invalidParam("force", "must be true or false")
		}
	}
	id := r.PathValue("id")
	if !saneID(id, 64) {
		return aviary.Errorf(aviary.CodeNotFound, "api.delete", "There is no such job.")
	}
	err = s.Intake.Delete(r.Context(), id, force)
	s.watcher.look(id)
	var e *aviary.Error
	if errors.As(err, &e) && e.Code == aviary.CodeJobActive && e.Hint == "" {
		hinted := *e
		hinted.Hint = "Cancel it first, or add ?force=true."
		err = &hinted
	}
	if err != nil {
		return err
	}
	return x.empty(http.StatusNoContent)
}

// attempts lists the tries at a job.
func (s *Server) attempts(x *exchange, r *http.Request) error {
	if _, err := params(r); err != nil {
		return err
	}
	job, err := s.find(r.Context(), r)
	if err != nil {
		return err
	}
	list, err := s.Store.Attempts(r.Context(), job.ID)
	if err != nil {
		return err
	}
	out := AttemptList{Object: "list", Data: []Attempt{}}
	for _, a := range list {
		out.Data = append(out.Data, newAttempt(a))
	}
	return x.reply(http.StatusOK, out)
}
