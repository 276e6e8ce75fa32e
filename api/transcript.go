package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/aviary-asr/aviary"
)

// transcript answers with the result of a job in the format asked for.
func (s *Server) transcript(x *exchange, r *http.Request) error {
	query, err := params(r, "format")
	if err != nil {
		return err
	}
	f, err := chooseFormat(query.Get("format"), r.Header.Values("Accept"))
	if err != nil {
		return err
	}
	job, err := s.find(r.Context(), r)
	if err != nil {
		return err
	}
	if err := s.noTranscript(job); err != nil {
		return err
	}
	t, err := s.Store.Transcript(r.Context(), job.ID)
	if err != nil {
		return err
	}
	body, err := f.render(job.ID, t)
	if err != nil {
		return fmt.Errorf("render %s of %s: %w", f.name, job.ID, err)
	}
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	h := x.Header()
	h.Set("ETag", etag)
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Vary", "Accept")
	if matches(r.Header.Get("If-None-Match"), etag) {
		return x.empty(http.StatusNotModified)
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Disposition", disposition(job, f))
	x.send(http.StatusOK, body)
	return nil
}

// noTranscript is why a job has no transcript, nil if it has one. A failed job's own problem stands in the answer, but does not become the
// answer's code: the request failed because of the job's state, whatever led to it.
func (s *Server) noTranscript(job aviary.Job) error {
	const op = "api.transcript"
	switch job.State {
	case aviary.StateSucceeded:
		return nil
	case aviary.StateFailed:
		why := "for a reason that is not known"
		if job.Problem != nil {
			why = string(job.Problem.Code)
		}
		return &jobError{aviary.Errorf(aviary.CodeStateConflict, op, "The job failed (%s); there is no transcript.", why), job}
	case aviary.StateCanceled:
		return &jobError{aviary.Errorf(aviary.CodeStateConflict, op, "The job was canceled; there is no transcript."), job}
	case aviary.StateExpired:
		return gone(job)
	default:
		e := aviary.Errorf(aviary.CodeTranscriptNotReady, op, "The job is %s.", job.State)
		e.Wait = s.pollAfter(job, 0)
		e.Hint = "Ask for the job with ?wait=30 until it is final."
		return &jobError{e, job}
	}
}

// chooseFormat picks by name, or else by the Accept headers, or else JSON.
func chooseFormat(name string, accept []string) (format, error) {
	if name != "" {
		for _, f := range formats {
			if f.name == name {
				return f, nil
			}
		}
		return format{}, noFormat("There is no format %q.", name)
	}
	ranges := parseAccept(strings.Join(accept, ","))
	if len(ranges) == 0 {
		return formats[0], nil
	}
	best, most := format{}, 0.0
	for _, f := range formats {
		media, _, _ := strings.Cut(f.contentType, ";")
		if q := quality(ranges, media); q > most {
			best, most = f, q
		}
	}
	if most == 0 {
		return format{}, noFormat("None of the accepted media types (%s) is available.", strings.Join(accept, ", "))
	}
	return best, nil
}

func noFormat(detail string, args ...any) error {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	e := aviary.Errorf(aviary.CodeFormatNotAvailable, "api.transcript", detail, args...)
	e.Hint = "Formats: " + strings.Join(names, ", ") + "."
	return e
}

// mediaRange is one element of an Accept header (RFC 9110, 12.5.1).
type mediaRange struct {
	media string
	q     float64
}

// parseAccept leaves out what it cannot read.
func parseAccept(header string) []mediaRange {
	var list []mediaRange
	for element := range strings.SplitSeq(header, ",") {
		media, params, err := mime.ParseMediaType(element)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil || !(q >= 0 && q <= 1) {
				continue
			}
		}
		list = append(list, mediaRange{media, q})
	}
	return list
}

// quality is what the most specific range that matches says of a media type; 0 when none does.
func quality(ranges []mediaRange, media string) float64 {
	major, _, _ := strings.Cut(media, "/")
	for _, pattern := range []string{media, major + "/*", "*/*"} {
		if i := slices.IndexFunc(ranges, func(r mediaRange) bool { return r.media == pattern }); i >= 0 {
			return ranges[i].q
		}
	}
	return 0
}

// disposition names the file for those who save it: the upload's name with the format's extension, also in plain ASCII (RFC 6266, RFC 8187).
func disposition(job aviary.Job, f format) string {
	name := path.Base(strings.ReplaceAll(job.Options.Name, `\`, "/"))
	name = strings.TrimSuffix(name, path.Ext(name))
	if name == "" || name == "." || name == "/" {
		name = job.ID
	}
	name += f.extension
	ascii := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\%`, r) {
			return '_'
		}
		return r
	}, name)
	out := `attachment; filename="` + ascii + `"`
	if ascii != name {
		out += "; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
	}
	return out
}

// format is one way to render a transcript.
type format struct {
	name        string // of ?format
	contentType string // what is before the semicolon is matched with Accept
	extension   string
	render      func(jobID string, t aviary.Transcript) ([]byte, error)
}

// formats is the table of transcript formats; the first is the default. A format is a file format_<name>.go and a line here.
var formats = []format{
	{"json", "application/json", ".json", renderJSON},
	{"text", "text/plain; charset=utf-8", ".txt", renderText},
	{"srt", "application/x-subrip; charset=utf-8", ".srt", renderSRT},
	{"vtt", "text/vtt; charset=utf-8", ".vtt", renderVTT},
}

// renderCaptions writes cues one after another.
func renderCaptions(t aviary.Transcript, cue func(b *bytes.Buffer, number int, c caption)) ([]byte, error) {
	if _, ok := aviary.Seconds(t.DurationSeconds); !ok {
		return nil, fmt.Errorf("the transcript's duration is %v s", t.DurationSeconds)
	}
	var b bytes.Buffer
	for i, c := range captions(t) {
		cue(&b, i+1, c)
	}
	return b.Bytes(), nil
}
