package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aviary-asr/aviary"
)

// optionTable lists the options that are one value, with how each is set. labels is the other one.
var optionTable = map[string]func(o *aviary.Options, value string) error{
	"name": func(o *aviary.Options, v string) error { o.Name = v; return nil },
	"attention": func(o *aviary.Options, v string) (err error) {
		o.Attention, err = aviary.ParseAttentionMode(v)
		return err
	},
	"channel": func(o *aviary.Options, v string) (err error) {
		o.Channel, err = aviary.ParseChannel(v)
		return err
	},
	"priority": func(o *aviary.Options, v string) (err error) {
		o.Priority, err = aviary.ParsePriority(v)
		return err
	},
}

// numbers lists the options that JSON may give as a number too.
var numbers = map[string]bool{"channel": true}

// optionSet gathers options from the query and from the options part. An option may be given once. Everything that is wrong is
// gathered too, so that a client learns of all of it at once.
type optionSet struct {
	aviary.Options
	given map[string]bool
	wrong []FieldError
}

// queryOptions reads name, priority, attention, channel and label.K from a query.
func queryOptions(rawQuery string) (*optionSet, error) {
	query, err := parseQuery(rawQuery)
	if err != nil {
		return nil, err
	}
	o := &optionSet{given: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		for _, value := range query[name] {
			if key, ok := strings.CutPrefix(name, "label."); ok {
				o.label(key, value)
			} else {
				o.text(name, value)
			}
		}
	}
	return o, nil
}

// parseQuery is url.ParseQuery with the error of our own.
func parseQuery(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, aviary.WrapError(aviary.CodeMalformedRequest, "api.query", err, "The query cannot be read.")
	}
	return query, nil
}

// addJSON reads the options part: one JSON object. It returns an error only when that cannot be read as such.
func (o *optionSet) addJSON(text []byte) error {
	const op = "api.options"
	var fields map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&fields); err != nil {
		return aviary.WrapError(aviary.CodeMalformedRequest, op, err, "The options are not a JSON object.")
	}
	if _, err := dec.Token(); err != io.EOF {
		return aviary.Errorf(aviary.CodeMalformedRequest, op, "Something follows the JSON object of the options.")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[name]
		switch {
		case string(raw) == "null" && (name == "labels" || optionTable[name] != nil):
		case name == "labels":
			o.labelsJSON(raw)
		default:
			var value *string
			switch {
			case numbers[name] && json.Unmarshal(raw, new(float64)) == nil:
				value = new(string(raw))
			case optionTable[name] != nil && json.Unmarshal(raw, &value) != nil:
				o.invalid(pointer(name), "must be a string")
				continue
			}
			if value == nil {
				value = new(string) // unknown: text will say so
			}
			o.text(name, *value)
		}
	}
	return nil
}

func (o *optionSet) labelsJSON(raw json.RawMessage) {
	var labels map[string]json.RawMessage
	if json.Unmarshal(raw, &labels) != nil {
		o.invalid("/labels", "must be an object of strings")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		var value *string
		if json.Unmarshal(labels[key], &value) != nil || value == nil {
			o.invalid(pointer("labels", key), "must be a string")
			continue
		}
		o.label(key, *value)
	}
}

// text sets an option of optionTable. An empty value is the server's default.
func (o *optionSet) text(name, value string) {
	set := optionTable[name]
	at := pointer(name)
	switch {
	case set == nil:
		known := append(slices.Sorted(maps.Keys(optionTable)), "labels")
		o.wrong = append(o.wrong, FieldError{at, aviary.CodeOptionUnknown, "There is no such option; there are " + joinWords(known) + "."})
	case o.once(at) && o.printable(at, value) && value != "":
		if err := set(&o.Options, value); err != nil {
			o.invalid(at, err.Error())
		}
	}
}

func (o *optionSet) label(key, value string) {
	at := pointer("labels", key)
	if !o.once(at) || !o.printable(at, key) || !o.printable(at, value) {
		return
	}
	if o.Labels == nil {
		o.Labels = map[string]string{}
	}
	o.Labels[key] = value
}

func (o *optionSet) once(at string) bool {
	if o.given[at] {
		o.invalid(at, "is given twice")
		return false
	}
	o.given[at] = true
	return true
}

// printable refuses what databases and terminals choke on.
func (o *optionSet) printable(at, value string) bool {
	if !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		o.invalid(at, "has control characters or is not UTF-8")
		return false
	}
	return true
}

func (o *optionSet) invalid(at, detail string) {
	o.wrong = append(o.wrong, FieldError{at, aviary.CodeOptionInvalid, detail})
}

// err is nil if nothing is wrong.
func (o *optionSet) err() error { return fieldsErr("api.options", o.wrong) }

// fieldsErr makes one error of several about fields: option_unknown if any is that, otherwise option_invalid.
func fieldsErr(op string, wrong []FieldError) error {
	if len(wrong) == 0 {
		return nil
	}
	first := wrong[0]
	for _, w := range wrong {
		if w.Code == aviary.CodeOptionUnknown {
			first = w
			break
		}
	}
	detail := fmt.Sprintf("%s: %s", strings.TrimPrefix(first.Pointer, "/"), first.Detail)
	if more := len(wrong) - 1; more > 0 {
		detail += fmt.Sprintf(" (and %d more)", more)
	}
	return &fieldsError{aviary.Errorf(first.Code, op, "%s", detail), wrong}
}

// pointer makes a JSON pointer (RFC 6901).
func pointer(path ...string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, p := range path {
		b.WriteString("/" + escape.Replace(strings.ToValidUTF8(p, "\uFFFD")))
	}
	return b.String()
}
