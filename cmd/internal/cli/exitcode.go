package cli

import (
	"context"
	"errors"
	"os"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

// The exit codes of every command.
const (
	exitDone         = 0
	exitOther        = 1
	exitUsage        = 2
	exitSomeFailed   = 3
	exitRefused      = 4
	exitNotFound     = 5
	exitTimedOut     = 6
	exitUnreachable  = 7
	exitJobFailed    = 8
	exitLocalIO      = 10
	exitHung         = 70 // of serve: a call of a device hangs
	exitDeviceFailed = 71 // of serve: a device failed, or none is fit for use
	exitInterrupted  = 130
	exitTerminated   = 143
)

// exitError carries an exit code that the error's kind alone does not tell. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitOf maps codes to exit codes; what is not here is a refusal.
var exitOf = map[aviary.Code]int{
	aviary.CodeNotFound:           exitNotFound,
	aviary.CodeJobExpired:         exitNotFound,
	aviary.CodeQueueFull:          exitUnreachable,
	aviary.CodeQuotaExceeded:      exitUnreachable,
	aviary.CodeStorageFull:        exitUnreachable,
	aviary.CodeStoreUnavailable:   exitUnreachable,
	aviary.CodeDraining:           exitUnreachable,
	aviary.CodeInternal:           exitOther,
	aviary.CodeTranscriptNotReady: exitTimedOut,

	aviary.CodeIdempotencyInProgress: exitUnreachable,
}

// exitCode is what the process answers for err.
func exitCode(err error) int {
	var exit *exitError
	var e *aviary.Error
	var path *os.PathError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, api.ErrUnreachable):
		return exitUnreachable
	case errors.As(err, &e):
		if code, ok := exitOf[e.Code]; ok {
			return code
		}
		return exitRefused
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimedOut
	case errors.As(err, &path):
		return exitLocalIO
	}
	return exitOther
}

func usageError(err error) error { return &exitError{exitUsage, err} }
