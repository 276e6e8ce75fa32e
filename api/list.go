package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

const (
	defaultLimit = 50
	mostLimit    = 200
)

// filter selects jobs. It travels inside the cursor, so that the next page is of the same list.
type filter struct {
	States       []aviary.State    `json:"s,omitempty"`
	Labels       map[string]string `json:"l,omitempty"`
	CreatedAfter time.Time         `json:"t,omitzero"`
	Ascending    bool              `json:"a,omitempty"`
}

// cursor is where a page starts. Clients see it as an opaque word.
type cursor struct {
	filter
	After string `json:"i"`
}

func (c cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil { // not possible: strings, times of a request and a bool
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseCursor(text string) (cursor, error) {
	var c cursor
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	for _, s := range c.States {
		if _, bad := aviary.ParseState(string(s)); bad != nil {
			err = bad
		}
	}
	if err != nil || !saneID(c.After, 64) {
		return cursor{}, invalidParam("cursor", "is not one that this server gave out")
	}
	return c, nil
}

// list answers with a page of jobs.
func (s *Server) list(x *exchange, r *http.Request) error {
	query, err := params(r, "status", "label.", "created_after", "sort", "limit", "cursor")
	if err != nil {
		return err
	}
	c, limit, err := listQuery(query)
	if err != nil {
		return err
	}
	page, err := s.Store.Jobs(r.Context(), aviary.JobQuery{
		States: c.States, Labels: c.Labels, CreatedAfter: c.CreatedAfter, Ascending: c.Ascending, Limit: limit, After: c.After,
	})
	if err != nil {
		return err
	}
	out := JobList{Object: "list", Data: make([]Job, 0, len(page.Jobs)), HasMore: page.Next != ""}
	for _, job := range page.Jobs {
		out.Data = append(out.Data, newJob(job))
	}
	if out.HasMore {
		c.After = page.Next
		out.NextCursor = c.String()
		next := url.Values{"cursor": {out.NextCursor}, "limit": {strconv.Itoa(limit)}}
		x.Header().Set("Link", fmt.Sprintf(`</v1/jobs?%s>; rel="next"`, next.Encode()))
	}
	return x.reply(http.StatusOK, out)
}

// listQuery reads filter, cursor and limit. Filters beside a cursor are fine as long as they say what the cursor says.
func listQuery(query url.Values) (cursor, int, error) {
	limit := defaultLimit
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostLimit {
			return cursor{}, 0, invalidParam("limit", fmt.Sprintf("must be a number from 1 to %d", mostLimit))
		}
	}
	f, err := parseFilter(query)
	if err != nil {
		return cursor{}, 0, err
	}
	text := query.Get("cursor")
	if text == "" {
		return cursor{filter: f}, limit, nil
	}
	c, err := parseCursor(text)
	if err != nil {
		return cursor{}, 0, err
	}
	if given := !reflect.DeepEqual(f, filter{}); given && (cursor{filter: f}).String() != (cursor{filter: c.filter}).String() {
		return cursor{}, 0, invalidParam("cursor", "belongs to a list with other filters")
	}
	return c, limit, nil
}

func parseFilter(query url.Values) (filter, error) {
	var f filter
	if text := query.Get("status"); text != "" {
		for word := range strings.SplitSeq(text, ",") {
			state, err := aviary.ParseState(word)
			if err != nil {
				return f, invalidParam("status", err.Error())
			}
			f.States = append(f.States, state)
		}
	}
	for name, values := range query {
		if key, ok := strings.CutPrefix(name, "label."); ok {
			if key == "" || !plain(key) || !plain(values[0]) {
				return f, invalidParam(name, "is not a label")
			}
			if f.Labels == nil {
				f.Labels = map[string]string{}
			}
			f.Labels[key] = values[0]
		}
	}
	if text := query.Get("created_after"); text != "" {
		t, err := time.Parse(time.RFC3339, text)
		t = t.UTC()
		if err != nil || t.Year() < 1 || t.Year() > 9999 {
			return f, invalidParam("created_after", "must be a time after RFC 3339, such as 2026-12-01T09:00:00Z")
		}
		f.CreatedAfter = t
	}
	switch text := query.Get("sort"); text {
	case "", "-created_at":
	case "created_at":
		f.Ascending = true
	default:
		return f, invalidParam("sort", "must be created_at or -created_at")
	}
	return f, nil
}

// plain says whether a text may be asked of a database.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
