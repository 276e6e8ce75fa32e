package aviary_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/aviary-asr/aviary"
)

// The observer is told apart: an end that was refused, one that never reached the store, one that is only one loss more, and the loss that quarantines.
func TestTheObserverHearsWhatBecameOfAnEnd(t *testing.T) {
	away := errors.New("the store is away")
	broken := fails(aviary.Errorf(aviary.CodeDeviceFailed, "device", "gone"))
	tests := []struct {
		name   string
		ledger *ledger
		device device
		want   aviary.AttemptEnd
	}{
		{"recorded", &ledger{}, says("hi"), aviary.AttemptEnd{Outcome: aviary.OutcomeSucceeded}},
		{"refused", &ledger{writeErrs: []error{aviary.ErrStale}}, says("hi"), aviary.AttemptEnd{Outcome: aviary.OutcomeLost, Fenced: true}},
		{"never recorded", &ledger{writeErrs: slices.Repeat([]error{away}, 10000)}, says("hi"), aviary.AttemptEnd{Outcome: aviary.OutcomeLost, Unrecorded: true}},
		{"a loss", &ledger{}, broken, aviary.AttemptEnd{Outcome: aviary.OutcomeLost}},
		{"the last but one", &ledger{job: aviary.Job{Lost: aviary.MaxLost - 2}}, broken, aviary.AttemptEnd{Outcome: aviary.OutcomeLost}},
		{"the last one", &ledger{job: aviary.Job{Lost: aviary.MaxLost - 1}}, broken, aviary.AttemptEnd{Outcome: aviary.OutcomeLost, Quarantined: true}},
		{"the last one, refused", &ledger{job: aviary.Job{Lost: aviary.MaxLost - 1}, writeErrs: []error{aviary.ErrStale}}, broken,
			aviary.AttemptEnd{Outcome: aviary.OutcomeLost, Fenced: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := newRunner(tt.ledger)
				_ = r.Run(t.Context(), ticket, tt.device) // the device that failed is reported, too
				if len(w.ends) != 1 {
					t.Fatalf("ends %+v", w.ends)
				}
				got := w.ends[0]
				if got.Outcome != tt.want.Outcome || got.Fenced != tt.want.Fenced || got.Unrecorded != tt.want.Unrecorded || got.Quarantined != tt.want.Quarantined {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
			})
		})
	}
}
