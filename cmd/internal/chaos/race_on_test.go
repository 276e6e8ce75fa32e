//go:build race

package chaos

// slowdown is by how much more time things may take under the race detector.
const slowdown = 5
