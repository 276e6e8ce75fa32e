//go:build unix

package chaos

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a client and a server and spoils what they say to each other.
type proxy struct {
	l      net.Listener
	target func() (net.Conn, error)

	// lose is asked about what a client says. When it is true, the server hears it, and the client hears nothing more on this connection, which is cut after
	// the server's reply.
	lose   atomic.Pointer[func(said []byte) bool]
	losses atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newProxy(t testing.TB, network, address string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, conns: map[net.Conn]bool{}, target: func() (net.Conn, error) { return net.Dial(network, address) }}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepting.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		accepting.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.l.Addr().String() }

// serve carries one connection.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := p.target()
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
		delete(p.conns, server)
	}()
	var lost atomic.Bool
	var both sync.WaitGroup
	both.Go(func() {
		p.carry(server, client, func(b []byte) bool {
			if lose := p.lose.Load(); lose != nil && (*lose)(b) {
				lost.Store(true)
			}
			return true
		})
		server.Close()
	})
	both.Go(func() {
		p.carry(client, server, func([]byte) bool {
			if lost.Load() {
				p.losses.Add(1)
				client.Close()
				server.Close()
			}
			return !lost.Load()
		})
		client.Close()
	})
	both.Wait()
}

// carry copies what passes.
func (p *proxy) carry(to io.Writer, from io.Reader, passes func([]byte) bool) {
	for b := make([]byte, 64<<10); ; {
		n, err := from.Read(b)
		if n > 0 && passes(b[:n]) {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// loseRepliesTo sets lose; nil ends it.
func (p *proxy) loseRepliesTo(said func([]byte) bool) {
	if said == nil {
		p.lose.Store(nil)
		return
	}
	p.lose.Store(&said)
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}
