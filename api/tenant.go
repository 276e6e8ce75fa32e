package api

import (
	"net/http"
	"strings"

	"github.com/aviary-asr/aviary"
)

// TenantFromHeader is a Config.Tenant that takes the caller's name from a header. The header must come from a proxy that authenticates callers and that
// removes the header from what they send: it is believed. A request without it is of aviary.DefaultTenant. One with two is refused, since one of them came
// from somebody else: together they are no name that a tenant can have.
func TenantFromHeader(name string) func(*http.Request) string {
	return func(r *http.Request) string {
		switch names := r.Header.Values(name); len(names) {
		case 0:
			return aviary.DefaultTenant
		case 1:
			if names[0] == "" {
				return aviary.DefaultTenant
			}
			return names[0]
		default:
			return strings.Join(names, "\n")
		}
	}
}
