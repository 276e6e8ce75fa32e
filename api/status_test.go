package api

import (
	"net/http"
	"testing"

	"github.com/aviary-asr/aviary"
)

// Every code has a status, and no status is of a code that is not.
func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	known := map[aviary.Code]bool{}
	for _, c := range aviary.Codes() {
		known[c] = true
		s, ok := statusOf[c]
		if !ok {
			t.Errorf("%s has no status", c)
		}
		if s != statusClientClosedRequest && http.StatusText(s) == "" || s < 400 {
			t.Errorf("%s has the status %d", c, s)
		}
		if c.Title() == "" {
			t.Errorf("%s has no title", c)
		}
		intakes := c == aviary.CodeQueueFull || c == aviary.CodeQuotaExceeded // always says when
		if (s == http.StatusServiceUnavailable || s == http.StatusTooManyRequests) && !intakes && retryAfter[c] == 0 {
			t.Errorf("%s does not say when to come back", c)
		}
	}
	for c := range statusOf {
		if !known[c] {
			t.Errorf("%s is no code", c)
		}
	}
	for c := range retryAfter {
		if !known[c] || !c.Retryable() {
			t.Errorf("%s says when to come back, and cannot be retried", c)
		}
	}
}
