// Package chaos breaks Aviary on purpose. Its tests run the system as what it is in production, processes that share a database, blobs and a Redis, and
// kill, freeze, cut off, wipe and fill up its parts while jobs run; after each test the invariants V1 to V8 are read from what is stored. There is no code here
// but that of tests: the test binary executes itself as the processes.
//
// Plain `go test` runs the short ones. AVIARY_TEST_CHAOS=long adds those that take longer, AVIARY_TEST_CHAOS=soak runs the soak alone, for AVIARY_TEST_SOAK (20m).
// What is random comes from AVIARY_TEST_SEED, which a failure names.
package chaos
