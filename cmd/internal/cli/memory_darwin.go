package cli

import "golang.org/x/sys/unix"

// HostMemoryBytes is the memory of the machine.
func HostMemoryBytes() (int64, error) {
	n, err := unix.SysctlUint64("hw.memsize")
	return int64(n), err
}
