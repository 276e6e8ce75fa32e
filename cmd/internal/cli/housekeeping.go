package cli

import (
	"context"
	"fmt"

	"github.com/aviary-asr/aviary"
)

// housekeeper keeps house by the settings, and tells the metrics.
func (s *System) housekeeper() *aviary.Housekeeper {
	return &aviary.Housekeeper{
		Store: s.store, Blobs: s.blobs, Log: s.log,
		RetentionAudio: s.settings.RetentionAudio, RetentionTranscript: s.settings.RetentionTranscript,
		Schedule: s.timing.Keeping,
		Report: func(did aviary.Kept) {
			s.metrics.AudioExpired(did.Audio)
			s.metrics.JobsExpired(did.Expired)
			s.metrics.TombstonesDropped(did.Tombstones)
			s.metrics.BlobsCollected(did.Collected)
			s.metrics.CounterDrift(did.Drift)
			if did.Refused {
				s.metrics.BlobsRefused()
			}
		},
	}
}

// warnOfOrphans is loud when a database that has never had a job meets blobs: it is likely that the database was lost, or that another one was meant.
// The process starts all the same, since a new database beside old blobs can also be what somebody wants.
func (s *System) warnOfOrphans(ctx context.Context) error {
	b, err := s.store.Backlog(ctx)
	if err != nil {
		return fmt.Errorf("AVIARY_DATABASE_URL: %w", err)
	}
	done, err := s.store.Processed(ctx)
	if err != nil {
		return fmt.Errorf("AVIARY_DATABASE_URL: %w", err)
	}
	jobs := done.Jobs // also those whose rows are no more
	for _, n := range b.States {
		jobs += n
	}
	if jobs > 0 {
		return nil
	}
	blobs, err := s.blobs.List(ctx, "", 1)
	if err != nil {
		return fmt.Errorf("AVIARY_BLOB_URL: %w", err)
	}
	if len(blobs) > 0 {
		s.log.Error("the database is empty, but there are recordings of jobs: was the database deleted, or is AVIARY_DATABASE_URL or AVIARY_DATA_DIR that of another system? "+
			"If the database was lost, stop and restore it: none of its jobs is known here. If all is as it should be, delete the recordings by hand",
			"one_of_them", blobs[0].Key, "written", blobs[0].Modified)
	}
	return nil
}
