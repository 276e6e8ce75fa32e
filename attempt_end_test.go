package aviary_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/aviary-asr/aviary"
)

// The observer is told apart: an end that was refused, one that never reached the store, and what the store made of the job, whatever its runner expected.
func TestTheObserverHearsWhatBecameOfAnEnd(t *testing.T) {
	away := errors.New("the store is away")
	broken := fails(aviary.Errorf(aviary.CodeDeviceFailed, "device", "gone"))
	wrong := fails(aviary.Errorf(aviary.CodeEngineFailed, "engine", "It does not know."))
	const queued, failed, canceled = aviary.StateQueued, aviary.StateFailed, aviary.StateCanceled
	last := aviary.Job{Lost: aviary.MaxLost - 1}
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
		{"the last one", &ledger{job: last, became: failed}, broken, aviary.AttemptEnd{Outcome: aviary.OutcomeLost, Quarantined: true}},
		{"one that was allowed meanwhile", &ledger{job: last, became: queued}, broken, aviary.AttemptEnd{Outcome: aviary.OutcomeLost}},
		{"the last one, with a cancel", &ledger{job: last, became: canceled}, broken, aviary.AttemptEnd{Outcome: aviary.OutcomeCanceled}},
		{"the last one, refused", &ledger{job: last, became: failed, writeErrs: []error{aviary.ErrStale}}, broken,
			aviary.AttemptEnd{Outcome: aviary.OutcomeLost, Fenced: true}},
		{"a failure", &ledger{}, wrong, aviary.AttemptEnd{Outcome: aviary.OutcomeRetried, Code: aviary.CodeEngineFailed}},
		{"the last try", &ledger{became: failed}, wrong, aviary.AttemptEnd{Outcome: aviary.OutcomeFailed, Code: aviary.CodeEngineFailed}},
		{"a failure with a cancel", &ledger{became: canceled}, wrong, aviary.AttemptEnd{Outcome: aviary.OutcomeCanceled, Code: aviary.CodeEngineFailed}},
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
				if tt.want.Code != "" && got.Code != tt.want.Code || got.Outcome != tt.want.Outcome || got.Fenced != tt.want.Fenced || got.Unrecorded != tt.want.Unrecorded || got.Quarantined != tt.want.Quarantined {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
			})
		})
	}
}
