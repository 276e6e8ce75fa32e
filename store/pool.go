package store

import (
	"context"
	"database/sql"
	"fmt"
)

// querier is what a pool and a transaction have in common.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// pool is a set of connections, with statements that each of them parses only once: SQLite parses most of ours longer than it runs them.
type pool struct {
	*sql.DB
	adapt    func(query string) string
	prepared map[string]*sql.Stmt
}

// newPool takes over db. Other statements than those named here run too, and are parsed each time, unless the driver remembers them.
func newPool(ctx context.Context, db *sql.DB, adapt func(query string) string, statements ...string) (*pool, error) {
	p := &pool{DB: db, adapt: adapt, prepared: map[string]*sql.Stmt{}}
	for _, query := range statements {
		stmt, err := db.PrepareContext(ctx, adapt(query)) //nolint:sqlclosecheck // kept, and ended by the end of db
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", query, err)
		}
		p.prepared[query] = stmt
	}
	return p, nil
}

func (p *pool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := p.prepared[query]; stmt != nil {
		return stmt.QueryRowContext(ctx, args...)
	}
	return p.DB.QueryRowContext(ctx, p.adapt(query), args...)
}

func (p *pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := p.prepared[query]; stmt != nil {
		return stmt.QueryContext(ctx, args...)
	}
	return p.DB.QueryContext(ctx, p.adapt(query), args...)
}

func (p *pool) begin(ctx context.Context, o *sql.TxOptions) (*txn, error) {
	tx, err := p.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return &txn{tx, p}, nil
}

// txn is a transaction that uses the prepared statements of its pool.
type txn struct {
	*sql.Tx
	pool *pool
}

func (t *txn) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := t.pool.prepared[query]; stmt != nil {
		return t.StmtContext(ctx, stmt).QueryRowContext(ctx, args...) //nolint:sqlclosecheck // it ends with the transaction
	}
	return t.Tx.QueryRowContext(ctx, t.pool.adapt(query), args...)
}

func (t *txn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := t.pool.prepared[query]; stmt != nil {
		return t.StmtContext(ctx, stmt).QueryContext(ctx, args...) //nolint:sqlclosecheck // closed by the caller
	}
	return t.Tx.QueryContext(ctx, t.pool.adapt(query), args...)
}

// ExecContext shadows that of sql.Tx.
func (t *txn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt := t.pool.prepared[query]; stmt != nil {
		return t.StmtContext(ctx, stmt).ExecContext(ctx, args...) //nolint:sqlclosecheck // it ends with the transaction
	}
	return t.Tx.ExecContext(ctx, t.pool.adapt(query), args...)
}
