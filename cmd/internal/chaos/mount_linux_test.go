package chaos

import "syscall"

// mountDisk mounts a small file system of its own at dir. It needs privileges.
func mountDisk(dir, size string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size) }

func unmountDisk(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
