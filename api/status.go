package api

import (
	"net/http"
	"time"

	"github.com/aviary-asr/aviary"
)

// statusClientClosedRequest is logged for a request whose client went away. Nobody is left to read it.
const statusClientClosedRequest = 499

// statusOf is the one table from codes to HTTP statuses. Codes that only ever stand in a job's error have 500: were one to reach a response, it
// would be our mistake.
var statusOf = map[aviary.Code]int{
	aviary.CodeMalformedRequest: http.StatusBadRequest,
	aviary.CodeAudioBroken:      http.StatusBadRequest,

	aviary.CodeNotFound:           http.StatusNotFound,
	aviary.CodeMethodNotAllowed:   http.StatusMethodNotAllowed,
	aviary.CodeFormatNotAvailable: http.StatusNotAcceptable,
	aviary.CodeJobExpired:         http.StatusGone,

	aviary.CodeUploadStalled: http.StatusRequestTimeout,

	aviary.CodeTranscriptNotReady: http.StatusConflict,
	aviary.CodeJobActive:          http.StatusConflict,
	aviary.CodeStateConflict:      http.StatusConflict,

	aviary.CodeIdempotencyInProgress: http.StatusConflict,

	aviary.CodeAudioTooLong:         http.StatusRequestEntityTooLarge,
	aviary.CodeDurationUnknown:      http.StatusRequestEntityTooLarge,
	aviary.CodeUploadTooLarge:       http.StatusRequestEntityTooLarge,
	aviary.CodeMediaTypeUnsupported: http.StatusUnsupportedMediaType,

	aviary.CodeOptionUnknown: http.StatusUnprocessableEntity,
	aviary.CodeOptionInvalid: http.StatusUnprocessableEntity,
	aviary.CodeAudioNoStream: http.StatusUnprocessableEntity,

	aviary.CodeIdempotencyKeyReused: http.StatusUnprocessableEntity,

	aviary.CodeQuotaExceeded: http.StatusTooManyRequests,

	aviary.CodeQueueFull:        http.StatusServiceUnavailable,
	aviary.CodeStorageFull:      http.StatusServiceUnavailable,
	aviary.CodeStoreUnavailable: http.StatusServiceUnavailable,
	aviary.CodeDraining:         http.StatusServiceUnavailable,
	aviary.CodeInternal:         http.StatusInternalServerError,

	aviary.CodeDeviceOutOfMemory: http.StatusInternalServerError,
	aviary.CodeDeviceFailed:      http.StatusInternalServerError,
	aviary.CodeEngineFailed:      http.StatusInternalServerError,
	aviary.CodeAttemptTimeout:    http.StatusInternalServerError,
	aviary.CodeWorkerLost:        http.StatusInternalServerError,
	aviary.CodeAttemptsExhausted: http.StatusInternalServerError,
	aviary.CodeCanceled:          statusClientClosedRequest,
}

// status is the HTTP status of a code.
func status(c aviary.Code) int {
	if s, ok := statusOf[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// retryAfter is when to come back after a refusal that names no time itself. Those for want of room name one: see aviary.Intake.
var retryAfter = map[aviary.Code]time.Duration{
	aviary.CodeStorageFull:        time.Minute,
	aviary.CodeStoreUnavailable:   5 * time.Second,
	aviary.CodeDraining:           5 * time.Second,
	aviary.CodeUploadStalled:      time.Second,
	aviary.CodeTranscriptNotReady: time.Second,
	aviary.CodeJobActive:          time.Second,

	aviary.CodeIdempotencyInProgress: time.Second,
}
