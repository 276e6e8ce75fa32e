package api_test

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// talk is a transcript with what formats must cope with: markup, an arrow, long sentences, pauses, a confidence.
func talk() aviary.Transcript {
	sure := .98765432
	word := func(text string, start, end float64) aviary.Word {
		return aviary.Word{Word: text, Start: start, End: end}
	}
	t := aviary.Transcript{
		Text:            "If a < b & c > d, then --> stop. Right.",
		Language:        "en",
		DurationSeconds: 7.0004,
		Segments: []aviary.Segment{
			{ID: 0, Start: .08, End: 4.16, Text: "If a < b & c > d, then --> stop.", Confidence: &sure, Words: []aviary.Word{
				{Word: "If", Start: .08, End: .24000001, Confidence: &sure}, word("a", .24, .32), word("<", .32, .56), word("b", .56, .72),
				word("&", .8, .96), word("c", .96, 1.12), word(">", 1.2, 1.28), word("d,", 1.28, 1.52), word("then", 2.0, 2.24),
				word("-->", 2.24, 2.56), word("stop.", 3.6, 4.16)}},
			{ID: 1, Start: 6.64, End: 6.8, Text: "Right.", Words: []aviary.Word{word("Right.", 6.64, 6.8)}},
		},
		Engine: aviary.Engine{Model: "m", Attention: aviary.Attention{Mode: "full", Reason: "short"}, DType: "float32", Device: "cpu", Software: "aviary"},
		Usage:  aviary.Usage{AudioSeconds: 7.0004, DeviceSeconds: .2345678, QueueSeconds: 1.5, RTFx: 29.8437},
	}
	return t
}

func TestTranscriptFormats(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("7", "?name=board%2FZo%C3%AB%201.m4a").ID
	r.finish(id, talk())
	path := "/v1/jobs/" + id + "/transcript"
	const (
		jsonType = "application/json"
		textType = "text/plain; charset=utf-8"
		srtType  = "application/x-subrip; charset=utf-8"
		vttType  = "text/vtt; charset=utf-8"
	)
	for _, test := range []struct{ query, accept, want string }{
		{"", "", jsonType},
		{"", "*/*", jsonType},
		{"", "text/html, application/xhtml+xml, */*;q=0.8", jsonType},
		{"", "text/*", textType},
		{"", "text/vtt", vttType},
		{"", "text/plain;q=0.5, text/vtt", vttType},
		{"", "text/*;q=0.5, text/vtt;q=0.1", textType},
		{"", "application/x-subrip, application/json;q=0.9", srtType},
		{"", "application/json;q=0, */*", textType},
		{"", "text/vtt/x; =, ;", jsonType}, // what cannot be read is left out
		{"?format=json", "text/vtt", jsonType},
		{"?format=text", "", textType},
		{"?format=srt", "", srtType},
		{"?format=vtt", "", vttType},
	} {
		a := r.get(path+test.query, "Accept", test.accept)
		if a.status != 200 || a.header.Get("Content-Type") != test.want {
			t.Errorf("%q, Accept %q: %d %s, want %s", test.query, test.accept, a.status, a.header.Get("Content-Type"), test.want)
		}
	}
	for _, test := range []struct{ query, accept string }{{"?format=docx", ""}, {"?format=JSON", ""}, {"", "audio/wav"}, {"", "nonsense"}, {"", "application/json;q=0"}} {
		p := r.get(path+test.query, "Accept", test.accept).problem(t, 406, aviary.CodeFormatNotAvailable)
		if p.Hint != "Formats: json, text, srt, vtt." {
			t.Errorf("problem: %+v", p)
		}
	}

	a := r.get(path + "?format=srt")
	if got, want := a.header.Get("Content-Disposition"), `attachment; filename="Zo_ 1.srt"; filename*=UTF-8''Zo%C3%AB%201.srt`; got != want {
		t.Errorf("Content-Disposition\n got %s\nwant %s", got, want)
	}
	tag := a.header.Get("ETag")
	if b := r.get(path+"?format=srt", "If-None-Match", tag); b.status != 304 || b.body != "" {
		t.Errorf("not modified: %+v", b)
	}
	if b := r.get(path+"?format=vtt", "If-None-Match", tag); b.status != 200 || b.header.Get("ETag") == tag {
		t.Errorf("another format: %+v", b.header)
	}
	if b := r.do("HEAD", path+"?format=srt", nil); b.status != 200 || b.body != "" || b.header.Get("ETag") != tag {
		t.Errorf("HEAD: %+v", b)
	}
	r.get(path+"?fromat=srt").problem(t, 422, aviary.CodeOptionUnknown)
}

// The JSON format is the canonical transcript: it decodes to what was stored, with times rounded and nothing made up.
func TestTranscriptJSON(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("7", "").ID
	r.finish(id, talk())
	a := r.get("/v1/jobs/" + id + "/transcript")
	o := a.object(t)
	if o["object"] != "transcript" || o["job_id"] != id || o["duration_seconds"] != 7.0 {
		t.Errorf("body: %s", a.body)
	}
	var got aviary.Transcript
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatal(err)
	}
	words := got.Segments[0].Words
	if got.Text != talk().Text || len(words) != 11 || words[0].End != .24 || *words[0].Confidence != .9877 || words[1].Confidence != nil ||
		got.Usage.DeviceSeconds != .235 || got.Usage.RTFx != 29.844 {
		t.Errorf("body: %s", a.body)
	}
}

// Silence is an empty text, and a success in every format.
func TestTranscriptOfSilence(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("7", "").ID
	r.finish(id, aviary.Transcript{DurationSeconds: 7})
	for format, want := range map[string]string{"text": "", "srt": "", "vtt": "WEBVTT\n"} {
		if a := r.get("/v1/jobs/" + id + "/transcript?format=" + format); a.status != 200 || a.body != want {
			t.Errorf("%s: %d %q", format, a.status, a.body)
		}
	}
	if a := r.get("/v1/jobs/" + id + "/transcript"); !strings.Contains(a.body, `"text":"","duration_seconds":7,"segments":[]`) {
		t.Errorf("json: %s", a.body)
	}
}

// A number that JSON does not have fails the request. It must neither break the answer in the middle nor become another number.
func TestTranscriptNotFinite(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("7", "").ID
	for name, spoil := range map[string]func(*aviary.Transcript){
		"duration": func(t *aviary.Transcript) { t.DurationSeconds = math.NaN() },
		"rtfx":     func(t *aviary.Transcript) { t.Usage.RTFx = math.Inf(1) },
		"word":     func(t *aviary.Transcript) { t.Segments[0].Words[0].End = math.NaN() },
	} {
		spoiled := talk()
		spoil(&spoiled)
		r.finish(id, spoiled)
		r.get("/v1/jobs/"+id+"/transcript").problem(t, 500, aviary.CodeInternal)
		if name == "duration" {
			r.get("/v1/jobs/"+id+"/transcript?format=srt").problem(t, 500, aviary.CodeInternal)
		}
	}
}

func TestTranscriptOfUnfinishedJobs(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("300", "").ID
	path := "/v1/jobs/" + id + "/transcript"
	a := r.get(path)
	p := a.problem(t, 409, aviary.CodeTranscriptNotReady)
	if p.RetryAfterSeconds != 10 || a.header.Get("Retry-After") != "10" || p.Job.Status != aviary.StateQueued || !p.Retryable {
		t.Errorf("queued: %+v", p)
	}
	r.store.set(id, func(j *aviary.Job) { j.State, j.Progress = aviary.StateRunning, 240*time.Second })
	if p := r.get(path).problem(t, 409, aviary.CodeTranscriptNotReady); p.RetryAfterSeconds != 2 || p.Job.Status != aviary.StateRunning {
		t.Errorf("running: %+v", p)
	}
	r.store.set(id, func(j *aviary.Job) {
		j.State, j.Problem = aviary.StateFailed, &aviary.Problem{Code: aviary.CodeAudioBroken, Detail: "At 3 s."}
	})
	p = r.get(path).problem(t, 409, aviary.CodeStateConflict)
	if p.Job.Status != aviary.StateFailed || p.Job.Error.Code != aviary.CodeAudioBroken || !strings.Contains(p.Detail, "audio_broken") || p.Retryable {
		t.Errorf("failed: %+v", p)
	}
	r.store.set(id, func(j *aviary.Job) { j.State, j.Problem = aviary.StateCanceled, nil })
	if p := r.get(path).problem(t, 409, aviary.CodeStateConflict); p.Job.Status != aviary.StateCanceled {
		t.Errorf("canceled: %+v", p)
	}
	// A format that does not exist is refused whatever the job's state: the caller's mistake is told at once.
	r.get(path+"?format=docx").problem(t, 406, aviary.CodeFormatNotAvailable)
	if methods := r.do("POST", path, nil).header.Get("Allow"); !slices.Contains(strings.Split(methods, ", "), http.MethodGet) {
		t.Errorf("Allow: %s", methods)
	}
}
