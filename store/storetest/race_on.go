//go:build race

package storetest

// The race detector makes SQLite in Go some twenty times slower.
const seeds, stepsPerSeed = 1, 300
