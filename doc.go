// Package aviary holds the domain of Aviary, a batch transcription system: what a job, an attempt, an upload and a transcript are,
// which interfaces the technologies around it implement, and the two procedures that everything else serves: the steps of a
// submit (Intake) and the steps of one attempt (Runner).
//
// It imports the standard library only. Subpackages implement its interfaces, one technology each: store (SQL and blobs), queue
// (asynq), probe (audio files), gpu (devices and the engine), api (HTTP). They never import each other; cmd wires them.
package aviary
