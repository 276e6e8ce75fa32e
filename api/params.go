package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aviary-asr/aviary"
)

// params reads the query of a request that takes the named parameters, each at most once. A name that ends in a dot allows all that begin
// with it. Any other is refused: a misspelled filter must not pass for none.
func params(r *http.Request, names ...string) (url.Values, error) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	var wrong []FieldError
	for _, name := range slices.Sorted(maps.Keys(query)) {
		known := slices.ContainsFunc(names, func(n string) bool {
			return n == name || strings.HasSuffix(n, ".") && strings.HasPrefix(name, n)
		})
		switch {
		case !known && len(names) == 0:
			wrong = append(wrong, FieldError{pointer(name), aviary.CodeOptionUnknown, "No parameters are known here."})
		case !known:
			wrong = append(wrong, FieldError{pointer(name), aviary.CodeOptionUnknown, "There is no such parameter; there are " + strings.ReplaceAll(joinWords(names), "label.", "label.KEY") + "."})
		case len(query[name]) > 1:
			wrong = append(wrong, FieldError{pointer(name), aviary.CodeOptionInvalid, "is given twice"})
		}
	}
	return query, fieldsErr("api.query", wrong)
}

// invalidParam is the error of one parameter.
func invalidParam(name, detail string) error {
	return fieldsErr("api.query", []FieldError{{pointer(name), aviary.CodeOptionInvalid, detail}})
}
