package api

import (
	"encoding/json"
	"errors"
	"math"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

// Whatever the query and the options part hold, the result is either an error that can be shown or options that a database takes.
func FuzzOptions(f *testing.F) {
	f.Add("name=a&priority=bulk&label.k=v", `{"attention":"full","labels":{"a":"b"}}`)
	f.Add("x=1", `{"name":1}`)
	f.Add("name=%00", "[]")
	f.Add("label.=%ff", `{"labels":{"\u0000":"x"}}`)
	f.Add("", `{"name":"\ud800"}{}`)
	f.Fuzz(func(t *testing.T, query, options string) {
		o, err := queryOptions(query)
		if err == nil {
			err = o.addJSON([]byte(options))
		}
		if err == nil {
			err = o.err()
		}
		if err != nil {
			p := newProblem(err)
			if _, jsonErr := encode(p); jsonErr != nil || p.Detail == "" || p.Code == aviary.CodeInternal {
				t.Fatalf("%v: %+v (%v)", err, p, jsonErr)
			}
			for _, field := range p.Errors {
				if !strings.HasPrefix(field.Pointer, "/") || !utf8.ValidString(field.Pointer) || field.Detail == "" {
					t.Fatalf("field %+v", field)
				}
			}
			return
		}
		texts := []string{o.Name}
		for k, v := range o.Labels {
			texts = append(texts, k, v)
		}
		for _, s := range texts {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Fatalf("%q was let through", s)
			}
		}
	})
}

// Whatever the query of a list, it is refused with a problem or gives a filter whose cursor reads back as itself.
func FuzzListQuery(f *testing.F) {
	f.Add("status=queued,running&label.a=b&created_after=2026-01-01T00:00:00Z&sort=created_at&limit=3")
	f.Add("cursor=eyJpIjoiam9iXzEifQ")
	f.Add("created_after=0000-01-01T00:00:00%2B23:59")
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/v1/jobs", nil)
		r.URL.RawQuery = query
		values, err := params(r, "status", "label.", "created_after", "sort", "limit", "cursor")
		if err != nil {
			return
		}
		c, limit, err := listQuery(values)
		if err != nil {
			if code := aviary.CodeOf(err); code != aviary.CodeOptionInvalid {
				t.Fatalf("%v", err)
			}
			return
		}
		c.After = "job_1"
		back, err := parseCursor(c.String())
		if err != nil || back.String() != c.String() || limit < 1 || limit > mostLimit {
			t.Fatalf("%+v became %+v (%v)", c, back, err)
		}
	})
}

func FuzzAccept(f *testing.F) {
	f.Add("text/*;q=0.5, text/vtt;q=0.1")
	f.Add("*/*;q=NaN")
	f.Fuzz(func(t *testing.T, header string) {
		chosen, err := chooseFormat("", []string{header})
		if err == nil && chosen.render == nil || err != nil && aviary.CodeOf(err) != aviary.CodeFormatNotAvailable {
			t.Fatalf("%+v, %v", chosen, err)
		}
	})
}

func TestTidyName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a.wav": "a.wav", "Zoë.wav": "Zoë.wav", "a\x00\n\x7fb": "ab", "\xff.wav": "\uFFFD.wav",
		strings.Repeat("é", 200): strings.Repeat("é", 127),
	} {
		if got := tidyName(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// Numbers that JSON does not have never get into a problem, and fail any other body.
func TestNothingInfiniteInJSON(t *testing.T) {
	t.Parallel()
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		p := newProblem(&aviary.Error{Code: aviary.CodeAudioTooLong, Detail: "d", Limit: x, Actual: 1, Unit: "seconds"})
		body, err := encode(p)
		if err != nil || p.Limit != nil || p.Actual != nil || p.Unit != "" {
			t.Errorf("%v: %s %v", x, body, err)
		}
		if body, err := encode(Progress{Fraction: x}); err == nil {
			t.Errorf("%v was encoded: %s", x, body)
		}
		if _, err := encode(newQueue(aviary.Backlog{}, 30, 600)); err != nil {
			t.Error(err)
		}
	}
}

// A problem survives the way to the client and back.
func TestProblemRoundTrip(t *testing.T) {
	t.Parallel()
	e := &aviary.Error{Code: aviary.CodeQueueFull, Detail: "Full.", Hint: "Wait.", Limit: 10, Actual: 11.5, Unit: "jobs", Wait: 1500e6}
	body, err := encode(newProblem(e))
	if err != nil {
		t.Fatal(err)
	}
	var p Problem
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("HTTP 503")
	back := p.err(cause)
	if back.Code != e.Code || back.Detail != e.Detail || back.Hint != e.Hint || back.Limit != 10 || back.Actual != 11.5 || back.Unit != "jobs" ||
		back.Wait != 2e9 || !errors.Is(back, cause) {
		t.Errorf("got %+v from %s", back, body)
	}
	if u, err := url.Parse(p.Type); err != nil || !u.IsAbs() {
		t.Errorf("type %q", p.Type)
	}
}
