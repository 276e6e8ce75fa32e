//go:build race

package asr

// raceDetector says that these tests run some twenty times slower: what is only more of the same is left out.
const raceDetector = true
