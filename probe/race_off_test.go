//go:build !race

package probe

const underRace = false
