//go:build unix && !linux

package chaos

import "errors"

func mountDisk(string, string) error { return errors.New("only on Linux") }

func unmountDisk(string) {}
