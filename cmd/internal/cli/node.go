package cli

import (
	"context"
	"encoding/json"
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

// nodeFile is what the file `node` of a data directory holds: the node's id, and the place that it was made for.
type nodeFile struct {
	Node string `json:"node"`
	nodePlace
}

// nodePlace is one file on one machine between two of its starts. A directory that was copied, or restored from an image of a disk, is at another place, and so is
// one whose machine was started again.
type nodePlace struct {
	File string `json:"file"`
	Host string `json:"host"`
	Boot string `json:"boot"`
}

// placeOf is the place of an open file.
func placeOf(f *os.File) (nodePlace, error) {
	info, err := f.Stat()
	if err != nil {
		return nodePlace{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "" // what else is known of the place has to do
	}
	return nodePlace{fileID(info), host, bootID()}, nil
}

// nodeID names the place that a data directory is, in the store that it may share with others: whoever holds the lock of a device in this directory knows that all
// attempts that this node has open on the device are those of dead processes. That does not hold for a copy of the directory, whose locks are its own. So the id is
// believed only at the place that it was made for, and everywhere else a new one is made: in doubt the attempts of dead processes wait for the end of their leases.
func nodeID(ctx context.Context, dir string, log *slog.Logger) (_ string, err error) {
	lock, err := waitForLock(ctx, filepath.Join(dir, "node.lock"), func(string) {})
	if err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	name := filepath.Join(dir, "node")
	old, now, err := readNode(name)
	if err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	if old.Node != "" && old.nodePlace == now && now.File != "" {
		return old.Node, nil
	}
	id := ulid.Make().String()
	if err := writeNode(name, id); err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	log.Info("the data directory is a new node: it was just made, copied or moved, or the machine was started again", "node", id, "was", old.Node, "made_for", old.nodePlace,
		"found_at", now)
	return id, nil
}

// readNode reads a node's file, and the place that it is at. The zero nodeFile means that there is none that can be understood.
func readNode(name string) (held nodeFile, at nodePlace, err error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return held, at, nil
	}
	if err != nil {
		return held, at, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if at, err = placeOf(f); err != nil {
		return held, at, err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return held, at, err
	}
	if json.Unmarshal(b, &held) != nil {
		return nodeFile{}, at, nil // torn, or of an older version
	}
	if _, err := ulid.ParseStrict(held.Node); err != nil {
		return nodeFile{}, at, nil
	}
	return held, at, nil
}

// writeNode replaces a node's file in one step: its content belongs to one file, and a copy keeps its content until it is replaced.
func writeNode(name, id string) (err error) {
	next := name + ".next"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	place, err := placeOf(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	b, err := json.Marshal(nodeFile{id, place})
	if err == nil {
		err = replace(f, string(b)+"\n")
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(next, name)
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
