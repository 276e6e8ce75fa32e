package aviary

import (
	"context"
	"time"
)

// storePatience is how long the store may take for a call on behalf of a submission. An upload may take hours; what is asked of the store meanwhile may not.
const storePatience = 30 * time.Second

// ask calls the store for a submission, and tells a store that is silent from a client that went away.
func (in *Intake) ask(ctx context.Context, call func(ctx context.Context) error) error {
	const op = "intake.store"
	patience := in.StorePatience
	if patience <= 0 {
		patience = storePatience
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return OutOfTime(ctx, op, call(bounded))
}
