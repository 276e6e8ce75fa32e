//go:build race

package probe

// underRace: the race detector makes decoding some twenty times slower. Tests then use less audio; CI also runs them without it.
const underRace = true
