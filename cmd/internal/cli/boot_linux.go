package cli

import (
	"os"
	"strings"
)

// bootID changes with every start of the machine. Empty means unknown.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
