package api

import (
	"crypto/rand"
	"net/http"
)

// requestID takes over a client's X-Request-Id if it is sane, so that it may be searched for on both sides, or makes one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); saneID(id, 128) {
		return id
	}
	return "req_" + rand.Text()
}

// saneID allows 1 to most letters, digits and -_.:, which need no quoting anywhere.
func saneID(id string, most int) bool {
	if id == "" || len(id) > most {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}
