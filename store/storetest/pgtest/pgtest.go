// Package pgtest gives tests a Postgres: the server that AVIARY_TEST_POSTGRES_URL names, or else one of their own, started from the installed
// binaries on a Unix socket in a temporary folder. It is for tests of any package and knows nothing of the store. It may not be part of a program.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	urlVariable     = "AVIARY_TEST_POSTGRES_URL"
	requireVariable = "AVIARY_TEST_REQUIRE_POSTGRES"
)

// shared is the server of all tests of this process that do not break it. One of their own ends with the process, or when it is forgotten.
var shared = sync.OnceValues(func() (server, error) {
	if url := os.Getenv(urlVariable); url != "" {
		return server{url: url}, nil
	}
	s, err := newServer()
	if err != nil {
		return server{}, err
	}
	return server{url: s.URL(), own: s}, s.Start()
})

type server struct {
	url string
	own *Server // nil if it outlives the tests
}

// Schema makes an empty schema on the shared server, and returns the URL of a database whose tables are those of the schema. Its connections can be
// told from others by their application_name, the name of the schema. Without a server the test is skipped, or fails if AVIARY_TEST_REQUIRE_POSTGRES is 1.
func Schema(t testing.TB) string {
	t.Helper()
	return schemaOn(t, sharedFor(t))
}

// URL of the shared server.
func URL(t testing.TB) string {
	t.Helper()
	return sharedFor(t).url
}

func sharedFor(t testing.TB) server {
	t.Helper()
	s, err := shared()
	if err != nil {
		giveUp(t, err)
	}
	return s
}

// schemaOn makes an empty schema. On a server that outlives the tests it is removed when the test has ended.
func schemaOn(t testing.TB, s server) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	const fast = "SET synchronous_commit = off"
	Exec(t, s.url, fast, "CREATE SCHEMA "+name)
	if s.own == nil {
		t.Cleanup(func() { Exec(t, s.url, fast, "DROP SCHEMA "+name+" CASCADE") })
	}
	return With(t, With(t, s.url, "search_path", name), "application_name", name)
}

// With sets a parameter of a URL.
func With(t testing.TB, server, key, value string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s is not a URL that these tests can add to", urlVariable) // what it is may hold a password
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// Exec runs statements over a connection of its own.
func Exec(t testing.TB, url string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also when the test's own context has ended
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost with it
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%v\n%s", err, statement)
		}
	}
}

// Sessions is how many connections a URL of Schema has open.
func Sessions(t testing.TB, schema string) (n int) {
	t.Helper()
	Query(t, schema, &n, "SELECT count(*) FROM pg_stat_activity WHERE application_name = current_schema() AND pid <> pg_backend_pid()")
	return n
}

// Query reads one value over a connection of its own.
func Query(t testing.TB, url string, into any, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing is lost with it
	if err := conn.QueryRow(ctx, query).Scan(into); err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
}

// errNoServer says that there is nothing to test with. Any other error is a failure.
var errNoServer = errors.New("there is no Postgres for tests")

func giveUp(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, errNoServer) || os.Getenv(requireVariable) == "1" {
		t.Fatal(err)
	}
	t.Skipf("%v: set %s, or install it", err, urlVariable)
}
