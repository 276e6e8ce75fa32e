//go:build !race

package asr

const raceDetector = false
