package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/aviary-asr/aviary"
)

// -> id, place. There is one row, made with the schema.
const systemSQL = `SELECT id, place FROM system`

// $1 marker.
const bindPlaceSQL = `UPDATE system SET place = $1 WHERE place = ''`

// SystemID implements aviary.Identity.
func (s *sqlStore) SystemID(ctx context.Context) (string, error) {
	const op = "store.system_id"
	var id, place string
	err := s.look(ctx, op, func(ctx context.Context) error {
		return known(op, s.read.QueryRowContext(ctx, systemSQL).Scan(&id, &place))
	})
	return id, err
}

// known explains that the row is missing, which somebody must have deleted.
func known(op string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return aviary.WrapError(aviary.CodeInternal, op, errors.New("the table system is empty: restore its row"), "The store failed.")
	}
	return err
}

// BindPlace implements aviary.Identity.
func (s *sqlStore) BindPlace(ctx context.Context, marker string) (string, error) {
	const op = "store.bind_place"
	var id, place string
	if marker == "" {
		err := s.look(ctx, op, func(ctx context.Context) error {
			return known(op, s.read.QueryRowContext(ctx, systemSQL).Scan(&id, &place))
		})
		return place, err
	}
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, _ time.Time) error {
		if _, err := tx.ExecContext(ctx, bindPlaceSQL, marker); err != nil {
			return err
		}
		return known(op, tx.QueryRowContext(ctx, systemSQL).Scan(&id, &place))
	})
	return place, err
}
