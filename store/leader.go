package store

import (
	"context"
	"time"
)

// $1 holder, $2 now, $3 end of the term -> one row, or none while somebody else leads.
const leadSQL = `
INSERT INTO leader (name, holder, until) VALUES ('leader', $1, $3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE leader.holder = excluded.holder OR leader.until <= $2`

// Lead implements aviary.Dispatching. Terms are measured by the store's clock alone. Where a call has to wait for another, it goes on with the time at
// which it came, which makes its own term shorter and the other's longer.
func (s *sqlStore) Lead(ctx context.Context, holder string, term time.Duration) (bool, error) {
	const op = "store.lead"
	leads := false
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) (err error) {
		leads, err = changed(ctx, tx, leadSQL, holder, stamp(now), stamp(now.Add(term)))
		return err
	})
	return leads && err == nil, err
}

// $1 holder.
const resignSQL = `DELETE FROM leader WHERE holder = $1`

// Resign implements aviary.Dispatching.
func (s *sqlStore) Resign(ctx context.Context, holder string) error {
	const op = "store.resign"
	return s.update(ctx, op, func(ctx context.Context, tx *txn, _ time.Time) error {
		_, err := tx.ExecContext(ctx, resignSQL, holder)
		return err
	})
}
