package cli

import (
	"fmt"
	"testing"

	"github.com/aviary-asr/aviary"
)

// What is over by itself is exit code 7, for scripts to come back; a refusal for good is 4. A code of the contract that is not here is a refusal.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[aviary.Code]int{
		aviary.CodeQuotaExceeded: exitUnreachable, aviary.CodeQueueFull: exitUnreachable, aviary.CodeIdempotencyInProgress: exitUnreachable,
		aviary.CodeIdempotencyKeyReused: exitRefused, aviary.CodeAudioTooLong: exitRefused,
		aviary.CodeJobExpired: exitNotFound, aviary.CodeInternal: exitOther,
	} {
		if got := exitCode(fmt.Errorf("submit: %w", aviary.Errorf(code, "", ""))); got != want {
			t.Errorf("%s: exit %d, want %d", code, got, want)
		}
	}
}
