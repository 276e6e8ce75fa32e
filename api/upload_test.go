package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
)

// raw talks HTTP by hand.
type raw struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (r *rig) raw() *raw {
	r.t.Helper()
	conn, err := r.dial()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return &raw{r.t, conn, bufio.NewReader(conn)}
}

func (c *raw) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

func (c *raw) read() reply {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.Close {
		resp.Header.Set("Connection", "close") // ReadResponse takes it out
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// A client that announces its upload is invited if it will do, and told otherwise before it sends a byte.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		c := r.raw()
		c.write("POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n")
		if a := c.read(); a.status != 100 {
			r.t.Fatalf("status %d, want 100", a.status)
		}
		c.write("AUDIO 1")
		if a := c.read(); a.status != 202 || a.header.Get("Connection") == "close" {
			r.t.Fatalf("answer: %+v", a)
		}
		time.Sleep(time.Minute) // the deadline of that answer is over; it must not hit the next invitation
		c.write("POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n")
		if a := c.read(); a.status != 100 {
			r.t.Fatalf("status %d, want 100", a.status)
		}
		c.write("AUDIO 1")
		c.read().job(r.t, 202)

		c.write("POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
		a := c.read()
		a.problem(r.t, 413, aviary.CodeUploadTooLarge)
		if a.header.Get("Connection") != "close" {
			r.t.Error("the connection must not be used on: the client may send the body all the same")
		}
		began := time.Now()
		if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) || time.Since(began) > time.Second {
			r.t.Errorf("after the refusal: %v after %v, want the end at once: the client sends nothing", err, time.Since(began))
		}
	})
}

// A client that reads only after it has sent everything still hears the refusal. Were the connection closed at once, its system would
// throw the answer away, or fail its writes.
func TestEarlyRefusalReachesAnEagerSender(t *testing.T) {
	t.Parallel()
	for _, framing := range []string{"Content-Length: 33554432\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2000000\r\n"} {
		r := start(t, nil)
		c := r.raw()
		c.write("POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" + framing)
		piece := strings.Repeat("x", 1<<20)
		for range 32 {
			c.write(piece)
		}
		a := c.read()
		a.problem(t, 413, aviary.CodeUploadTooLarge)
		if a.header.Get("Connection") != "close" {
			t.Error("the answer does not say that the connection ends")
		}
		r.nothing()
	}
}

// A connection on which a small upload was refused after its end can be used on.
func TestRefusalAfterTheBodyKeepsTheConnection(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := r.raw()
	for range 2 {
		c.write("POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
		c.read().problem(t, 415, aviary.CodeMediaTypeUnsupported)
	}
}

func TestStalledUpload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text string }{
		{"raw", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nAUDIO 1"},
		{"chunked", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nAUDIO\r\n"},
		{"in the options", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"options\"\r\n\r\n{"},
		{"in the file", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nAUDIO"},
		{"after the file", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nAUDIO 1\r\n--b--\r\n"},
		{"before the first byte", "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(r *rig) {
				c := r.raw()
				began := time.Now()
				c.write(test.text)
				a := c.read()
				p := a.problem(r.t, 408, aviary.CodeUploadStalled)
				if took := time.Since(began); took != 30*time.Second {
					r.t.Errorf("refused after %v, want 30 s", took)
				}
				if !p.Retryable || p.RetryAfterSeconds == 0 || a.header.Get("Connection") != "close" {
					r.t.Errorf("problem: %+v %v", p, a.header)
				}
				r.nothing()
			})
		})
	}
}

// Slow is not stalled: an upload of an hour passes as long as bytes arrive.
func TestSlowUploadPasses(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		c := r.raw()
		const text = "AUDIO 1\n"
		c.write("POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 128\r\n\r\n")
		began := time.Now()
		for range 128 / len(text) {
			for i := range text {
				time.Sleep(29 * time.Second)
				c.write(text[i : i+1])
			}
		}
		c.read().job(r.t, 202)
		if took := time.Since(began); took < time.Hour {
			r.t.Errorf("the test took only %v of its time", took)
		}
	})
}

// The idle deadline ends with the body: a slow probe or store does not make the server think that the client went away.
func TestDeadlineEndsWithTheBody(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.intake.Prober = slowProber{} }, func(r *rig) {
		r.do("POST", "/v1/jobs", strings.NewReader("AUDIO 1")).job(r.t, 202)
		r.do("POST", "/v1/jobs", strings.NewReader("AUDIO 1")).job(r.t, 202) // nor is a deadline left on the connection
	})
}

type slowProber struct{ scriptProber }

func (p slowProber) Normalize(ctx context.Context, r io.ReaderAt, size int64, n aviary.Normalizing, w aviary.RecordingWriter) (aviary.Audio, error) {
	select {
	case <-time.After(5 * time.Minute):
		return p.scriptProber.Normalize(ctx, r, size, n, w)
	case <-ctx.Done():
		return aviary.Audio{}, ctx.Err()
	}
}

// A client that goes away in the middle leaves nothing.
func TestDisconnectLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nAUDIO 1",
		"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nAUDIO 1\r\n",
		"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nAUDIO 1\r\n",
	} {
		inBubble(t, func(r *rig) { r.blobs.staged = make(chan struct{}, 1) }, func(r *rig) {
			c := r.raw()
			c.write(text)
			<-r.blobs.staged
			_ = c.conn.Close()
			synctest.Wait()
			r.nothing()
		})
	}
	// And one that goes away after its last byte, while the upload is probed.
	inBubble(t, func(r *rig) { r.intake.Prober = slowProber{} }, func(r *rig) {
		c := r.raw()
		c.write("POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\nAUDIO 1")
		synctest.Wait()
		_ = c.conn.Close()
		synctest.Wait()
		r.nothing()
		if !strings.Contains(r.log.String(), "status=499") {
			r.t.Errorf("log: %s", r.log)
		}
	})
}

// A client that sends its header a byte at a time is cut off.
func TestSlowHeaderIsCutOff(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		c := r.raw()
		began := time.Now()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for _, b := range []byte("GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Slow: " + strings.Repeat("a", 100)) {
				if _, err := c.conn.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		_, err := io.ReadAll(c.in)
		if took := time.Since(began); took > 11*time.Second || err != nil {
			r.t.Errorf("cut off after %v (%v), want 10 s", took, err)
		}
		<-sent
	})
}

func TestHugeHeaders(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := r.raw()
	c.write("GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX-Huge: " + strings.Repeat("a", 32<<10))
	go func() { _, _ = io.WriteString(c.conn, strings.Repeat("a", 64<<10)) }()
	if a := c.read(); a.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want 431", a.status)
	}
}

// zeros is an upload that is made as it is read.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

// 2 GB pass through constant memory, raw and as a form.
func TestHugeUploadInConstantMemory(t *testing.T) {
	size := int64(1 << 30) // twice
	if raceEnabled || testing.Short() {
		size = 64 << 20
	}
	peak := uint64(0)
	r := start(t, func(r *rig) {
		r.intake.Limits.UploadBytes = 0
		next := int64(0)
		r.blobs.sink = func(total int64) {
			if total < next {
				return
			}
			next = total + 32<<20
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
		}
	})
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	r.do("POST", "/v1/jobs", io.MultiReader(strings.NewReader("AUDIO 1\n"), &zeros{size})).job(t, 202)
	head := "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nAUDIO 1\n"
	r.do("POST", "/v1/jobs", io.MultiReader(strings.NewReader(head), &zeros{size}, strings.NewReader("\r\n--b--\r\n")),
		"Content-Type", "multipart/form-data; boundary=b").job(t, 202)
	if got := r.blobs.bytes.Load(); got != 2*size+16 {
		t.Errorf("%d bytes arrived, want %d", got, 2*size+16)
	}
	const bound = 16 << 20
	if grown := int64(peak) - int64(before.HeapInuse); grown > bound {
		t.Errorf("the heap grew by %d bytes, want at most %d", grown, bound)
	}
}
