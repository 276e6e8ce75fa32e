package cli

import "golang.org/x/sys/unix"

// bootID changes with every start of the machine. Empty means unknown.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
