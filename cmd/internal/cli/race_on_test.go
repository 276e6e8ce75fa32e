//go:build race

package cli_test

// underRace: the race detector makes the engine some twenty times slower. Tests then use less audio; CI also runs them without it.
const underRace = true
