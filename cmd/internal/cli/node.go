package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// errLocked says that another process has the lock.
var errLocked = errors.New("another process has the lock")

// lockPoll is between two tries at a lock that somebody else has.
const lockPoll = 100 * time.Millisecond

// waitForLock takes a lock on a file for this process alone, and waits for it as long as ctx lives. taken is called once if it has to wait, with what the holder
// wrote into the file.
func waitForLock(ctx context.Context, name string, taken func(holder string)) (*os.File, error) {
	for told := false; ; {
		f, err := lockFile(name, true)
		if !errors.Is(err, errLocked) {
			return f, err
		}
		if !told {
			told = true
			holder, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			taken(strings.TrimSpace(string(holder)))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// replace writes text in place of what a file holds, durably.
func replace(f *os.File, text string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return err
	}
	return f.Sync()
}

// nodeID names the place that a data directory is, in the store that it may share with others. It is made at the first start, and stays: whoever holds the lock of
// a device in this directory knows that all attempts that this node has open on the device are those of dead processes.
func nodeID(ctx context.Context, dir string) (_ string, err error) {
	f, err := waitForLock(ctx, filepath.Join(dir, "node"), func(string) {})
	if err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(f)
	if err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	if id, err := ulid.ParseStrict(strings.TrimSpace(string(b))); err == nil {
		return id.String(), nil
	}
	// None yet, or torn by a crash at the first start. A new one costs no more than waiting for the leases of that start.
	id := ulid.Make().String()
	if err := replace(f, id+"\n"); err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	return id, nil
}

// deviceFile is the file of a device in the data directory: its lock, or what is remembered of it.
func deviceFile(dir, device, ending string) string {
	return filepath.Join(dir, "devices", strings.ReplaceAll(device, ":", "-")+ending)
}

// lockDevice makes this process the only one of the node that uses a device, until it ends: also a process that hangs holds its device, and also one that was
// just killed may still be about to let go of it. It waits for the one that has the lock.
func lockDevice(ctx context.Context, dir, device string, log *slog.Logger) (*os.File, error) {
	name := deviceFile(dir, device, ".lock")
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	f, err := waitForLock(ctx, name, func(holder string) {
		log.Warn("another process uses the device; waiting for its end", "device", device, "lock", name, "pid", holder)
	})
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	if err := replace(f, strconv.Itoa(os.Getpid())+"\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: %w", device, err), f.Close())
	}
	return f, nil
}
