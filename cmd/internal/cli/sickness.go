package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// A device that failed or hung with so many jobs in so long is cordoned: it costs each job an attempt that it gets, and somebody should look at it.
const (
	cordonAfter  = 3
	cordonWithin = time.Hour
)

// selfTest stands for the job in the record of a device that failed before it had one.
const selfTest = "self-test"

// sickness is what is remembered of a device's failures, in a file beside its lock and for longer than a process lives. Only who holds the lock uses it.
type sickness struct {
	device, file string
	now          func() time.Time
}

// failedAt is one failure.
type failedAt struct {
	At  time.Time `json:"at"`
	Job string    `json:"job"`
	Err string    `json:"error"`
}

func newSickness(dir, device string) sickness {
	return sickness{device, deviceFile(dir, device, ".failures"), time.Now}
}

// recent reads the failures that still count. A file that cannot be understood says nothing.
func (s sickness) recent() ([]failedAt, error) {
	b, err := os.ReadFile(s.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []failedAt
	if json.Unmarshal(b, &list) != nil {
		list = nil // torn by a crash
	}
	now := s.now()
	return slices.DeleteFunc(list, func(f failedAt) bool { return now.Sub(f.At) >= cordonWithin || f.At.After(now) }), nil
}

// add remembers a failure or a hang. A job counts once: one that brings down each device that it comes to is a poison, which is quarantined, and no reason to do
// without the device. Nobody can tell three poisons within an hour from a device that fails with whatever it gets: those cordon it, for the rest of the hour.
func (s sickness) add(job string, cause error) error {
	list, err := s.recent()
	if err != nil {
		return err
	}
	if job != selfTest && slices.ContainsFunc(list, func(f failedAt) bool { return f.Job == job }) {
		return nil
	}
	b, err := json.MarshalIndent(append(list, failedAt{s.now().UTC(), job, cause.Error()}), "", "  ")
	if err != nil {
		return err
	}
	next := s.file + ".next"
	if err := os.WriteFile(next, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.file)
}

// cordon is nil, or the error that says why the device is not used, and until when. An error without exitDeviceFailed is not the device's: its file cannot be read.
func (s sickness) cordon() error {
	list, err := s.recent()
	if err != nil {
		return fmt.Errorf("what is remembered of the failures of device %s: %w", s.device, err)
	}
	if len(list) < cordonAfter {
		return nil
	}
	slices.SortFunc(list, func(a, b failedAt) int { return a.At.Compare(b.At) })
	until := list[len(list)-cordonAfter].At.Add(cordonWithin)
	return &exitError{exitDeviceFailed, fmt.Errorf(
		"device %s failed %d times within %v, the last time with %q: it is not used until %s, or until somebody has looked at it and deletes %s",
		s.device, len(list), cordonWithin, list[len(list)-1].Err, until.Format(time.RFC3339), s.file)}
}
