package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// The oracle has to pass what is asked of stores, as far as something in memory can: otherwise two mistakes could agree.
func TestModel(t *testing.T) {
	var models sync.Map // URL to *Model, so that two handles are on one database
	var n atomic.Int64
	b := Backend{
		New: func(testing.TB) string { return fmt.Sprint("model:", n.Add(1)) },
		Open: func(url string, now func() time.Time) (aviary.Store, error) {
			m, _ := models.LoadOrStore(url, NewModel(now))
			return m.(*Model), nil
		},
	}
	t.Run("Identity", func(t *testing.T) { testIdentity(t, b) })
	t.Run("Transitions", func(t *testing.T) { testTransitions(t, b) })
	t.Run("Attempts", func(t *testing.T) { testAttempts(t, b) })
	t.Run("Leases", func(t *testing.T) { testLeases(t, b) })
	t.Run("Dispatch", func(t *testing.T) { testDispatch(t, b) })
	t.Run("Races", func(t *testing.T) { testRaces(t, b) })
}
