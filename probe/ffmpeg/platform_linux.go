package ffmpeg

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// limit sets the kernel's limits for a process that runs. It waits for its first input meanwhile.
func limit(pid int, l Limits) error {
	seconds := uint64((l.CPU + time.Second - 1) / time.Second)
	for _, r := range []struct {
		what      int
		soft, top uint64
	}{
		{unix.RLIMIT_AS, uint64(l.MemoryBytes), uint64(l.MemoryBytes)},
		{unix.RLIMIT_CPU, seconds, seconds + 1}, // SIGXCPU, then SIGKILL
		{unix.RLIMIT_FSIZE, 0, 0},
		{unix.RLIMIT_CORE, 0, 0},
		{unix.RLIMIT_NOFILE, 32, 32}, // its pipes, and one of its libraries at a time while they are loaded
	} {
		var old unix.Rlimit
		err := unix.Prlimit(pid, r.what, nil, &old)
		if err == nil {
			err = unix.Prlimit(pid, r.what, &unix.Rlimit{Cur: min(r.soft, old.Max), Max: min(r.top, old.Max)}, nil) // it can only be lowered
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // it may have ended
			return fmt.Errorf("limit ffmpeg: %w", err)
		}
	}
	return nil
}

// reap waits for the process's end, ends what it left behind, and gives its number back, in this order: until it is given back, the number
// of the group cannot be another's.
func (p *Process) reap() {
	for errors.Is(unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.cmd.Process.Pid)
	p.exit = p.cmd.Wait()
	p.reaped = true
}
