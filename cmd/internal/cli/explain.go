package cli

import (
	"errors"
	"fmt"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

// explain is an error as a person wants to read it: what happened, and what can be done.
func explain(err error) string {
	var e *aviary.Error
	if errors.Is(err, api.ErrUnreachable) {
		return fmt.Sprintf("%v\nIs a server running? Start one with: aviary serve", err)
	}
	if !errors.As(err, &e) {
		return err.Error()
	}
	s := e.Detail
	if s == "" {
		s = e.Code.Title() + "."
	}
	s += fmt.Sprintf(" (%s)", e.Code)
	if e.Hint != "" {
		s += "\n" + e.Hint
	}
	return s
}
