package api

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

const (
	mostOptionBytes = 64 << 10
	// mostFraming is what a multipart body may hold beside the file, when its length alone is judged.
	mostFraming = mostOptionBytes + 64<<10
)

// submit takes an upload: multipart with an options part and a file part, or a raw body with options in the query.
func (s *Server) submit(x *exchange, r *http.Request) error {
	body := newUploadBody(x, r, s.UploadIdle, s.Metrics.uploaded)
	job, replayed, err := s.receive(r, body)
	if err != nil {
		body.refuse(x)
		return err
	}
	if !replayed {
		s.jobHeaders(x, job, 0)
		x.Header().Set("Location", jobPath(job.ID))
		return x.reply(http.StatusAccepted, newJob(job))
	}
	x.Header().Set(headerReplayed, "true")
	if err := gone(job); err != nil {
		return err
	}
	s.jobHeaders(x, job, 0)
	x.Header().Set("Location", jobPath(job.ID))
	return x.reply(http.StatusOK, newJob(job))
}

// The headers of a request that may be repeated, and of the answer to a repetition.
const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotency-Replayed"
)

// submission is what a request says beside its file and options.
func (s *Server) submission(r *http.Request) (aviary.Submission, error) {
	out := aviary.Submission{Tenant: s.Tenant(r)}
	switch keys := r.Header.Values(headerKey); {
	case len(keys) > 1:
		return out, aviary.Errorf(aviary.CodeMalformedRequest, "api.submit", "There is more than one Idempotency-Key.")
	case len(keys) == 1 && keys[0] == "":
		return out, aviary.Errorf(aviary.CodeMalformedRequest, "api.submit", "The Idempotency-Key is empty.")
	case len(keys) == 1:
		out.Key = keys[0]
	}
	return out, nil
}

// receive reads a request and hands its file on.
func (s *Server) receive(r *http.Request, body *uploadBody) (job aviary.Job, replayed bool, err error) {
	wanted, err := s.submission(r)
	if err != nil {
		return aviary.Job{}, false, err
	}
	file, err := s.findFile(r, body, &wanted.Options)
	if err != nil {
		return aviary.Job{}, false, err
	}
	return s.Intake.Submit(r.Context(), file, wanted)
}

// findFile reads a request up to its file, and the options.
func (s *Server) findFile(r *http.Request, body *uploadBody, into *aviary.Options) (io.Reader, error) {
	const op = "api.submit"
	if s.isDraining() {
		return nil, aviary.Errorf(aviary.CodeDraining, op, "The server is shutting down and takes no uploads.")
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, aviary.Errorf(aviary.CodeMediaTypeUnsupported, op, "Content-Encoding %q is not accepted; send the file as it is.", e)
	}
	opts, err := queryOptions(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	file := io.Reader(body)
	contentType := r.Header.Get("Content-Type")
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(contentType)), "multipart/") {
		if file, err = s.findPart(r, body, contentType, opts); err != nil {
			return nil, err
		}
	} else if err := s.checkLength(r.ContentLength, 0); err != nil {
		return nil, err
	} else if r.ContentLength == 0 {
		e := aviary.Errorf(aviary.CodeAudioBroken, op, "The file is empty: the request has no body.")
		e.Hint = "With curl: --data-binary @FILE, or -F file=@FILE."
		return nil, e
	}
	*into = opts.Options
	return file, opts.err()
}

// checkLength refuses by the announced length what could only be refused later by counting.
func (s *Server) checkLength(length, framing int64) error {
	limit := s.Intake.Limits.UploadBytes
	if limit <= 0 || length-framing <= limit {
		return nil
	}
	return &aviary.Error{Code: aviary.CodeUploadTooLarge, Op: "api.submit", Detail: "The upload has more bytes than the server takes.",
		Limit: float64(limit), Actual: float64(length), Unit: "bytes"}
}

// findPart reads a multipart body up to its file.
func (s *Server) findPart(r *http.Request, body *uploadBody, contentType string, opts *optionSet) (io.Reader, error) {
	const op = "api.multipart"
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return nil, aviary.WrapError(aviary.CodeMalformedRequest, op, err, "The Content-Type of the multipart body names no valid boundary.")
	}
	if media != "multipart/form-data" {
		return nil, aviary.Errorf(aviary.CodeMediaTypeUnsupported, op, "%s is not accepted; send multipart/form-data.", media)
	}
	if err := s.checkLength(r.ContentLength, mostFraming); err != nil {
		return nil, err
	}
	parts := &partReader{Reader: multipart.NewReader(body, params["boundary"]), body: body}
	file, err := parts.findFile(opts)
	if err != nil {
		return nil, err
	}
	if opts.Name == "" {
		opts.Name = tidyName(file.part.FileName())
	}
	return file, nil
}

// partReader walks the parts of an upload: options, if any, then file, then nothing.
type partReader struct {
	*multipart.Reader
	body *uploadBody
}

// next is the next part. The body's own error, such as a stall, is what the client should hear rather than what the parser made of it.
func (p *partReader) next() (*multipart.Part, error) {
	part, err := p.NextRawPart()
	if err != nil {
		return nil, p.explain(err)
	}
	return part, nil
}

func (p *partReader) explain(err error) error {
	var e *aviary.Error
	switch {
	case err == nil || err == io.EOF || errors.As(err, &e): //nolint:errorlint // a wrapped EOF is no end, but a break
		return err
	case p.body.err != nil && !errors.Is(p.body.err, io.EOF):
		return p.body.err
	}
	return aviary.WrapError(aviary.CodeMalformedRequest, "api.multipart", err, "The multipart body is malformed or breaks off.")
}

// findFile reads up to the file part.
func (p *partReader) findFile(opts *optionSet) (*filePart, error) {
	const op = "api.multipart"
	for seen := false; ; seen = true {
		part, err := p.next()
		if err == io.EOF { //nolint:errorlint // the io.Reader contract
			return nil, aviary.Errorf(aviary.CodeMalformedRequest, op, `The multipart body has no part named "file".`)
		}
		if err != nil {
			return nil, err
		}
		switch name := part.FormName(); {
		case name == "file":
			return &filePart{parts: p, part: part}, nil
		case name == "options" && !seen:
			if err := p.readOptions(part, opts); err != nil {
				return nil, err
			}
		case name == "options":
			return nil, aviary.Errorf(aviary.CodeMalformedRequest, op, `There is more than one part named "options".`)
		default:
			return nil, strayPart(name)
		}
	}
}

func (p *partReader) readOptions(part *multipart.Part, opts *optionSet) error {
	const op = "api.options"
	text, err := io.ReadAll(io.LimitReader(part, mostOptionBytes+1))
	if err != nil {
		return p.explain(err)
	}
	if len(text) > mostOptionBytes {
		return aviary.Errorf(aviary.CodeMalformedRequest, op, "The options part has more than %d bytes.", mostOptionBytes)
	}
	return opts.addJSON(text)
}

// strayPart refuses a part that is neither options nor file. It is most likely an option in the wrong place.
func strayPart(name string) error {
	e := aviary.Errorf(aviary.CodeOptionUnknown, "api.multipart", "There is no part named %q.", name)
	e.Hint = `Send options in the query, as in ?priority=bulk, or as one JSON object in a part named "options", and the audio in a part named "file".`
	return &fieldsError{e, []FieldError{{pointer(name), aviary.CodeOptionUnknown, "This is not a part of an upload."}}}
}

// filePart is the file's bytes. It ends well only when the whole body does: a second file, or options too late, refuse the upload before
// anything came of it.
type filePart struct {
	parts *partReader
	part  *multipart.Part
	err   error
}

func (f *filePart) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.part.Read(p)
	if err == io.EOF { //nolint:errorlint // the io.Reader contract
		err = f.end()
	}
	f.err = f.parts.explain(err)
	return n, f.err
}

// end reads what follows the file.
func (f *filePart) end() error {
	const op = "api.multipart"
	part, err := f.parts.next()
	switch {
	case err == nil && part.FormName() == "options":
		e := aviary.Errorf(aviary.CodeMalformedRequest, op, "The options come after the file.")
		e.Hint = `Send the part "options" before the part "file".`
		return e
	case err == nil && part.FormName() == "file":
		e := aviary.Errorf(aviary.CodeMalformedRequest, op, "There is more than one file.")
		e.Hint = "Submit each file in a request of its own."
		return e
	case err == nil:
		return strayPart(part.FormName())
	case err != io.EOF: //nolint:errorlint // the io.Reader contract
		return err
	}
	// What follows the last boundary means nothing, but a little of it is usual, and the connection can only be used on when it is read.
	if _, err := io.CopyN(io.Discard, f.parts.body, mostFraming); errors.Is(err, io.EOF) {
		return io.EOF
	} else if err != nil {
		return err
	}
	return aviary.Errorf(aviary.CodeMalformedRequest, op, "Much follows the last boundary of the multipart body.")
}

// tidyName makes a file's name fit to be shown: valid UTF-8, no control characters, not too long.
func tidyName(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	const most = 255
	for len(name) > most {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}
