//go:build !race

package storetest

// seeds is how many random histories are tried, and stepsPerSeed how many operations each has.
const seeds, stepsPerSeed = 3, 2000
