// Package store keeps what Aviary must not forget: jobs, attempts and transcripts in a SQL database (aviary.Store), uploads as blobs
// (aviary.Blobs). SQLite and plain files are the defaults, Postgres is for several hosts; other databases and object stores are added as one file
// and one line each, and pass the conformance suite in storetest.
//
// The rows are the truth about every job. Each transition is one conditional UPDATE that names the state and the attempt it expects, so
// a late, doubled or stale write changes nothing. The package knows nothing of queues, HTTP or devices, and reads no environment, but for
// libpq's own variables on Postgres.
package store
