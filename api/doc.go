// Package api is Aviary over HTTP: the server's handlers, the rendering of transcripts, the metrics, and the client that the command line and
// the load test share with users. It turns requests into calls of aviary.Intake and aviary.Store and their answers into JSON; it decides
// nothing about jobs, and knows no SQL, no queue and no audio format.
package api
