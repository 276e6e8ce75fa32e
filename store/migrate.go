package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/aviary-asr/aviary/migrations"
)

// Migration says from which schema version to which a database was brought. A new database starts from 0.
type Migration struct{ From, To int64 }

// migrate applies what is missing. Two processes may do so at once. On Postgres the second waits for the first. On SQLite each file runs in a
// transaction that takes the write lock first, so the one that comes second fails on what is already there; it goes on with the next file.
func migrate(ctx context.Context, db *sql.DB, d dialect) (Migration, error) {
	if d.lockSchema != nil {
		unlock, err := d.lockSchema(ctx, db)
		if err != nil {
			return Migration{}, err
		}
		defer unlock()
	}
	files, err := fs.Sub(migrations.Files, d.folder)
	if err != nil {
		return Migration{}, err
	}
	p, err := goose.NewProvider(d.goose, db, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return Migration{}, err
	}
	var m Migration
	if m.From, m.To, err = p.GetVersions(ctx); err != nil {
		return m, fmt.Errorf("read the schema version: %w", err)
	}
	if m.From > m.To {
		return m, fmt.Errorf("%w: its schema has version %d, this program knows up to %d", ErrNewerSchema, m.From, m.To)
	}
	if m.From == m.To {
		return m, nil
	}
	for at := m.From; ; {
		_, err := p.Up(ctx)
		if err == nil {
			return m, nil
		}
		now, _, again := p.GetVersions(ctx)
		if again == nil && now == m.To {
			return m, nil
		}
		if again != nil || now <= at { // nobody else got further
			return m, errors.Join(fmt.Errorf("migrate the schema from version %d to %d: %w", m.From, m.To, err), again)
		}
		at = now
	}
}
