package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/aviary-asr/aviary"
)

// uploadBody is a request's body on its way in. The time between bytes is bounded, the time of the whole is not: a slow upload passes, a
// stalled one ends with CodeUploadStalled.
type uploadBody struct {
	src     io.Reader
	rc      *http.ResponseController
	idle    time.Duration
	count   func(bytes int)
	invited bool  // whether the client may be sending: it does not wait for a 100 Continue that was never sent
	err     error // that ended it; io.EOF when all was read
}

func newUploadBody(x *exchange, r *http.Request, idle time.Duration, count func(int)) *uploadBody {
	return &uploadBody{src: r.Body, rc: x.rc, idle: idle, count: count, invited: r.Header.Get("Expect") == ""}
}

func (b *uploadBody) Read(p []byte) (int, error) {
	const op = "api.upload"
	if b.err != nil {
		return 0, b.err
	}
	b.invited = true
	_ = b.rc.SetReadDeadline(time.Now().Add(b.idle)) // a recorder in a test has no deadlines
	n, err := b.src.Read(p)
	b.count(n)
	if err == nil {
		return n, nil
	}
	// The deadline must not outlive the body: the server goes on listening on the connection, to learn whether the client goes away.
	_ = b.rc.SetReadDeadline(time.Time{})
	switch {
	case err == io.EOF:
		b.err = io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.err = aviary.WrapError(aviary.CodeUploadStalled, op, err, "No byte arrived for %v.", b.idle)
	default:
		b.err = aviary.WrapError(aviary.CodeMalformedRequest, op, err, "The body broke off before it was complete.")
	}
	return n, b.err
}

// A refused client that keeps sending is listened to for a while. Closing at once would make its system throw away the answer that it has
// not read yet; and many clients read only when they have sent all.
const (
	lingerTime  = 5 * time.Second
	lingerBytes = 64 << 20
)

// linger reads what the client still sends, after it was answered. Connection: close must have been said.
func (b *uploadBody) linger() {
	_ = b.rc.Flush()
	_ = b.rc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, b.src, lingerBytes)
}

// refuse prepares the connection for an answer that comes before the body's end. In any case the server will try to read on when the handler
// has returned, and must not wait for bytes that may never come.
func (b *uploadBody) refuse(x *exchange) {
	if errors.Is(b.err, io.EOF) {
		return
	}
	x.Header().Set("Connection", "close")
	x.afterReply = func() { _ = b.rc.SetReadDeadline(time.Now()) }
	if b.err == nil && b.invited {
		_ = b.rc.EnableFullDuplex() // else the server would read on before it answers; over HTTP/2 this is so anyway
		x.afterReply = b.linger
	}
}
