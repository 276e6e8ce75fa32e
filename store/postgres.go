package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/aviary-asr/aviary"
)

// Postgres runs many transactions at once, each of them READ COMMITTED: an UPDATE waits for the row, and looks at its condition again when it
// has it. Statements that find one row by such a condition need nothing else. What takes two statements holds the row first (holdSQL), what
// looks for many rows passes over the locked ones, and accepts that come close to the limits take turns (acceptSQL).
var postgresDialect = dialect{
	folder: "postgres", goose: goose.DialectPostgres, classify: classifyPostgres, adapt: adaptPostgres,
	lockSchema:  lockPostgresSchema,
	again:       againOnPostgres,
	clockSQL:    `SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)`,
	holdSQL:     `SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE`,
	accepting:   &acceptSQL{beside: besideSQL, alone: `SELECT pg_advisory_xact_lock(` + acceptLock + `)`},
	acceptingOf: &acceptSQL{beside: tenantBesideSQL, alone: `SELECT pg_advisory_xact_lock(` + tenantLock + `)`},
	candidatesSQL: tenantsSQL + `
SELECT j.id, j.tenant, j.audio_us FROM tenants AS t CROSS JOIN LATERAL (
	SELECT id, tenant, audio_us, created_at, seq FROM jobs INDEXED BY jobs_ready WHERE tenant = t.tenant AND ` + readySQL + `
	ORDER BY created_at, seq LIMIT $2) AS j
ORDER BY j.tenant, j.created_at, j.seq`,
	snapshot: sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead},
}

// Keys of advisory locks, which are numbers that only have to differ from other programs' in the same database. The second one is a key for
// each schema, since it goes with the schema's table of counters; the third, a key for each tenant of a schema. Tenants whose keys are the same by
// chance take turns with each other.
const (
	schemaLock = 0x6176_6961_7279 // "aviary"
	acceptLock = `1635150177, CAST(CAST(CAST('counters' AS regclass) AS oid) AS int)`
	tenantLock = `hashtextextended($1, CAST(CAST(CAST('counters' AS regclass) AS oid) AS bigint))`

	besideSQL = `
SELECT CAST(sum(jobs) AS BIGINT), CAST(sum(audio_us) AS BIGINT), CAST(current_setting('max_connections') AS BIGINT)
FROM pg_advisory_xact_lock_shared(` + acceptLock + `), counters WHERE state = 'queued'`

	// The lock stands alone in FROM: joined with the rows of a tenant that has none, it might not be taken.
	tenantBesideSQL = `
SELECT (SELECT CAST(coalesce(sum(jobs), 0) AS BIGINT) FROM tenant_counters WHERE tenant = $1),
	(SELECT CAST(coalesce(sum(audio_us), 0) AS BIGINT) FROM tenant_counters WHERE tenant = $1),
	CAST(current_setting('max_connections') AS BIGINT)
FROM pg_advisory_xact_lock_shared(` + tenantLock + `)`
)

// What a connection is given, unless the URL says otherwise.
const (
	postgresConnections = 12               // of a store: two thirds write, a third reads
	connectWait         = 10 * time.Second // for a host to answer
	statementTime       = 30 * time.Second // of one statement, on top of what it may wait for locks
	frozenTime          = 15 * time.Second // after which the server ends a transaction whose process does nothing, and with it its locks
	callTime            = time.Minute      // of a call of the store, on top of what it may wait for locks
)

// indexMarks are the conditions in the schema by which a statement names an index: see migrations/postgres. They are INDEXED BY for Postgres.
var (
	indexMarks = map[string]string{
		"jobs_created": "seq <> -1", "jobs_state": "seq <> -2", "jobs_ready": "seq <> -3",
		"jobs_delayed": "seq <> -4", "jobs_dispatched": "seq <> -5", "jobs_leased": "seq <> -6",
		"jobs_overdue": "seq <> -7", "jobs_audio": "seq <> -8", "jobs_ended": "seq <> -9", "jobs_expired": "seq <> -10",
	}
	indexedBy = regexp.MustCompile(`(?s) INDEXED BY (\w+)(.*?)WHERE `)
)

func markIndexes(query string) string {
	return indexedBy.ReplaceAllStringFunc(query, func(clause string) string {
		m := indexedBy.FindStringSubmatch(clause)
		return fmt.Sprintf("%sWHERE %s AND ", m[2], indexMarks[m[1]])
	})
}

// marked are the statements that do not change, so that none of them is searched each time.
var marked = func() map[string]string {
	list := map[string]string{}
	for _, query := range slices.Concat(writing, reading) {
		list[query] = markIndexes(query)
	}
	return list
}()

func adaptPostgres(query string) string {
	if text, ok := marked[query]; ok {
		return text
	}
	return markIndexes(query)
}

// openPostgres opens a pool for writes and a pool that can only read: reads go on while all writes wait for something.
func openPostgres(ctx context.Context, dsn string, o Options) (aviary.Store, error) {
	p, err := parsePostgres(dsn, o)
	if err != nil {
		return nil, err
	}
	if _, err := p.migrate(ctx); err != nil {
		return nil, err
	}
	reads := max(p.connections/3, 1)
	writer, reader := p.writer(p.connections-reads), p.reader(reads)
	for _, db := range []*sql.DB{writer, reader} {
		if err := db.PingContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("open the database: %w", explainPostgres(err)), reader.Close(), writer.Close())
		}
	}
	// The driver prepares each statement at its first use of a connection, and keeps it.
	write, err1 := newPool(ctx, writer, postgresDialect.adapt)
	read, err2 := newPool(ctx, reader, postgresDialect.adapt)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, reader.Close(), writer.Close())
	}
	d := postgresDialect
	d.longestCall = o.LockWait + callTime
	return &sqlStore{dialect: d, read: read, write: write, clock: o.Clock}, nil
}

func migratePostgres(ctx context.Context, dsn string, o Options) (Migration, error) {
	p, err := parsePostgres(dsn, o)
	if err != nil {
		return Migration{}, err
	}
	return p.migrate(ctx)
}

// postgresURL is a database URL that has been read.
type postgresURL struct {
	config      *pgx.ConnConfig
	connections int
	options     Options
}

// parsePostgres reads a URL. Its errors quote nothing of it that could be a part of the password.
func parsePostgres(dsn string, o Options) (*postgresURL, error) {
	authority, path, _ := strings.Cut(strings.TrimPrefix(beforeQuery(dsn), "//"), "/")
	if !strings.HasPrefix(dsn, "//") || strings.Count(authority, "@") > 1 || strings.Contains(path, "@") {
		return nil, errPostgresURL
	}
	config, err := pgx.ParseConfig("postgres:" + dsn)
	var e *pgconn.ParseConfigError
	switch {
	case errors.As(err, &e):
		e.ConnString = ""
		_, what, _ := strings.Cut(e.Error(), "``: ")
		if strings.Contains(what, "as URL") {
			return nil, errPostgresURL
		}
		return nil, fmt.Errorf("database URL: %s", what)
	case err != nil:
		return nil, errPostgresURL
	}
	p := &postgresURL{config: config, connections: postgresConnections, options: o}
	if n, ok := config.RuntimeParams["pool_max_conns"]; ok {
		if p.connections, err = strconv.Atoi(n); err != nil || p.connections < 2 {
			return nil, errors.New("database URL: pool_max_conns is not a number from 2 on")
		}
		delete(config.RuntimeParams, "pool_max_conns")
	}
	// A standby, or a primary that has been demoted, is no place for the truth.
	config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	broken := config.OnPgError
	config.OnPgError = func(c *pgconn.PgConn, e *pgconn.PgError) bool { // false closes the connection: a new one looks for the primary again
		return e.Code != stateReadOnly && broken(c, e)
	}
	if config.ConnectTimeout == 0 || config.ConnectTimeout > connectWait && !strings.Contains(dsn, "connect_timeout") {
		config.ConnectTimeout = connectWait
	}
	return p, nil
}

var errPostgresURL = errors.New("the database URL cannot be read: it is not like postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full; " +
	"in a name or password, each of : / ? # @ % has to be written as % and two hex digits")

func beforeQuery(dsn string) string {
	before, _, _ := strings.Cut(dsn, "?")
	return before
}

// connect makes a pool of n connections with settings of their own; what the URL sets stays. One that writes goes only to a server that lets it.
func (p *postgresURL) connect(n int, settings map[string]string, o ...stdlib.OptionOpenDB) *sql.DB {
	config := p.config.Copy()
	params := map[string]string{"application_name": "aviary"}
	maps.Copy(params, settings)
	maps.Copy(params, config.RuntimeParams)
	config.RuntimeParams = params
	if settings[readOnlySetting] != "on" {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	db := stdlib.OpenDB(*config, o...)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	db.SetConnMaxIdleTime(5 * time.Minute)
	db.SetConnMaxLifetime(time.Hour) // a server that came back, or was added, gets its share
	return db
}

// session are settings that keep one stuck process or statement from stopping the others, and one plan from staying while the tables grow: plans
// that were made for a table of ten rows read it from end to end, and would be kept for some minutes after it has a hundred thousand.
func (p *postgresURL) session() map[string]string {
	ms := func(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }
	return map[string]string{
		"lock_timeout":                        ms(p.options.LockWait),
		"statement_timeout":                   ms(p.options.LockWait + statementTime),
		"idle_in_transaction_session_timeout": ms(frozenTime),
		"plan_cache_mode":                     "force_custom_plan",
	}
}

func (p *postgresURL) writer(n int) *sql.DB {
	settings := p.session()
	if p.options.volatile {
		settings["synchronous_commit"] = "off"
		return p.connect(n, settings)
	}
	return p.connect(n, settings, stdlib.OptionAfterConnect(refuseVolatile))
}

const readOnlySetting = "default_transaction_read_only"

func (p *postgresURL) reader(n int) *sql.DB {
	settings := p.session()
	settings[readOnlySetting] = "on"
	return p.connect(n, settings)
}

// migrate waits for whoever migrates, and for locks of tables, as long as ctx allows.
func (p *postgresURL) migrate(ctx context.Context) (Migration, error) {
	settings := map[string]string{"lock_timeout": "0", "statement_timeout": "0"}
	if p.options.volatile {
		settings["synchronous_commit"] = "off"
	}
	db := p.connect(2, settings)
	m, err := migrate(ctx, db, postgresDialect)
	if err != nil {
		return m, errors.Join(fmt.Errorf("open the database: %w", explainPostgres(err)), db.Close())
	}
	return m, db.Close()
}

// lockPostgresSchema takes a lock that ends with its connection, and so with the process at the latest.
func lockPostgresSchema(ctx context.Context, db *sql.DB) (unlock func(), err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	discard := func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // closes it
	}
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, schemaLock); err != nil {
		discard()
		return nil, fmt.Errorf("wait for others to migrate the schema: %w", err)
	}
	return discard, nil
}

// refuseVolatile refuses a server that acknowledges a commit before it is on its disk: a job is accepted once it is committed, and an accepted
// job outlives a power cut. Whether a standby has it too is for the server's settings to say.
func refuseVolatile(ctx context.Context, conn *pgx.Conn) error {
	for _, name := range []string{"synchronous_commit", "fsync"} {
		var value string
		if err := conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return err
		}
		if value == "off" {
			return fmt.Errorf("the Postgres server runs with %s = off: accepted jobs could be lost; switch it on, for this user or in the URL at least", name)
		}
	}
	return nil
}

// SQLSTATEs, by what they mean here. See appendix A of the Postgres manual.
const (
	stateUniqueViolation = "23505"
	stateDiskFull        = "53100"
	stateReadOnly        = "25006" // the server has become a standby, or was told to take no writes
	classResources       = "53"    // memory, connections, room
	stateSerialization   = "40001"
	stateDeadlock        = "40P01"
	stateTooManyConns    = "53300"
	stateLockTimeout     = "55P03"
	stateCanceled        = "57014" // statement_timeout
	stateShutdown        = "57P01" // an administrator ended the connection
	stateCrash           = "57P02" // of another process of the server
	stateStarting        = "57P03"
	stateFrozen          = "25P03" // idle_in_transaction_session_timeout
	stateNotUTF8         = "22021" // or a NUL in it
	stateAuthorization   = "28000"
	statePassword        = "28P01"
	stateNoDatabase      = "3D000"
	statePrivilege       = "42501"
)

// againOnPostgres: see dialect. A connection that fails before the commit takes its transaction with it.
func againOnPostgres(err error, committing bool) remedy {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return remedyNone
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case e.Code == stateSerialization, e.Code == stateDeadlock: // also at the commit: the server says that it did not
			return remedyWait
		case committing:
			return remedyNone
		case e.Code == stateTooManyConns, e.Code == stateStarting, connecting && (e.Code == stateShutdown || e.Code == stateCrash):
			return remedyWait
		case e.Code == stateShutdown, e.Code == stateCrash, e.Code == stateFrozen, e.Code == stateReadOnly:
			return remedyReconnect
		}
		return remedyNone
	}
	switch _, network := errors.AsType[net.Error](err); {
	case committing:
		return remedyNone
	case connecting:
		return remedyWait
	case network:
		return remedyReconnect
	}
	for _, gone := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, pgconn.ErrConnClosed, driver.ErrBadConn} {
		if errors.Is(err, gone) {
			return remedyReconnect
		}
	}
	return remedyNone
}

// classifyPostgres gives an error of the driver a code. What it says to users shows nothing of the inside; the cause is kept for the log.
func classifyPostgres(op string, err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case stateReadOnly:
			return aviary.WrapError(aviary.CodeStoreUnavailable, op, explainPostgres(err), "The store takes no writes for now.")
		case stateDiskFull:
			return aviary.WrapError(aviary.CodeStorageFull, op, err, "The server has no room for this.")
		case stateUniqueViolation:
			switch e.ConstraintName {
			case "jobs_id":
				return taken(op, err)
			case "jobs_request":
				return fmt.Errorf("%s: %w", op, aviary.ErrRequestKeyTaken)
			}
		case stateNotUTF8: // jobs are created without such texts, so it was looked for
			return aviary.WrapError(aviary.CodeNotFound, op, err, "There is no such job.")
		case stateLockTimeout, stateCanceled, stateSerialization, stateDeadlock, stateFrozen:
			return aviary.WrapError(aviary.CodeStoreUnavailable, op, err, "The store is busy.")
		}
		if strings.HasPrefix(e.Code, classResources) {
			return aviary.WrapError(aviary.CodeStoreUnavailable, op, err, "The store is busy.")
		}
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	if connecting || againOnPostgres(err, false) != remedyNone { // the server or the way to it is gone
		return aviary.WrapError(aviary.CodeStoreUnavailable, op, explainPostgres(err), "The store does not answer.")
	}
	return aviary.WrapError(aviary.CodeInternal, op, explainPostgres(err), "The store failed.")
}

// explainPostgres says in front of an error what an operator should know about it.
func explainPostgres(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
			return fmt.Errorf("the Postgres server cannot be reached: %w", err)
		}
		return err
	}
	switch e.Code {
	case stateAuthorization, statePassword:
		return fmt.Errorf("the Postgres server refuses the user or the password: %w", err)
	case stateNoDatabase:
		return fmt.Errorf("the database has to be created first: %w", err)
	case statePrivilege:
		return fmt.Errorf("the user may not do this; to migrate, it has to be allowed to create tables and functions in its schema: %w", err)
	case stateReadOnly:
		return fmt.Errorf("the Postgres server takes no writes, as a standby or one with default_transaction_read_only = on: %w", err)
	case stateStarting:
		return fmt.Errorf("the Postgres server is starting or stopping: %w", err)
	}
	return err
}
