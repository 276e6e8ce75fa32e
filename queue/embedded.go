package queue

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Embedded opens a connection to a new, empty server inside this process, for a deployment that is one process. Nothing listens: client
// and server talk over memory, so nobody else on the machine can reach it. What it holds ends with Close, and is not missed: the rows are
// the jobs.
func Embedded(log *slog.Logger) *Conn {
	quietClient()
	m := newMemory()
	options := withDefaults(&redis.Options{Addr: "embedded", Dialer: m.dial})
	c := newConn(options, log, "in this process")
	c.memory = m
	return c
}

// memory is a Redis server inside this process.
type memory struct {
	server *miniredis.Miniredis

	mu     sync.Mutex
	closed bool
	ends   sync.WaitGroup // the goroutines of bufferedConn
}

func newMemory() *memory {
	server := miniredis.NewMiniRedis()
	// By default time stands still in it, and the registrations of dead lanes would stay.
	server.ClockTTL(true)
	return &memory{server: server}
}

// errClosed is returned by dials after Close.
var errClosed = errors.New("queue: the embedded server is closed")

func (m *memory) dial(context.Context, string, string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	if m.server.Server() == nil {
		// Dial starts a server without a listener. The connection that it returns has no buffer, see bufferedConn.
		first, err := m.server.Dial()
		if err != nil {
			return nil, err
		}
		if err := first.Close(); err != nil {
			return nil, err
		}
	}
	client, server := net.Pipe()
	m.server.Server().ServeConn(newBufferedConn(server, &m.ends))
	return client, nil
}

// close ends all connections and waits for their goroutines.
func (m *memory) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.server.Close()
	m.ends.Wait()
}

// bufferedConn is a connection whose Write does not wait for the reader. net.Pipe has no buffer: a client that writes a pipeline of some
// kilobytes before it reads, and a server that answers each command at once, would wait for each other. What is buffered is bounded by
// what the client has asked for.
type bufferedConn struct {
	net.Conn

	mu     sync.Mutex
	change *sync.Cond
	unsent []byte
	closed bool
}

func newBufferedConn(conn net.Conn, ends *sync.WaitGroup) *bufferedConn {
	c := &bufferedConn{Conn: conn}
	c.change = sync.NewCond(&c.mu)
	ends.Go(c.send)
	return c
}

// Write never blocks. An error of the connection below shows in the next Write.
func (c *bufferedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.unsent = append(c.unsent, p...)
	c.change.Signal()
	return len(p), nil
}

// Close drops what was not sent.
func (c *bufferedConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.change.Signal()
	c.mu.Unlock()
	return c.Conn.Close()
}

// send passes on what was written, until Close or until the reader is gone.
func (c *bufferedConn) send() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.unsent) == 0 && !c.closed {
			c.change.Wait()
		}
		if c.closed {
			return
		}
		batch := c.unsent
		c.unsent = nil
		c.mu.Unlock()
		_, err := c.Conn.Write(batch)
		c.mu.Lock()
		if err != nil {
			c.closed = true
		}
	}
}
