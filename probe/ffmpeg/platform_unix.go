//go:build unix

package ffmpeg

import (
	"os/exec"
	"syscall"
)

// isolate keeps our surroundings from a process: no variables, no directory, a process group of its own.
func isolate(cmd *exec.Cmd) {
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{}, "/", &syscall.SysProcAttr{Setpgid: true}
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // it fails where nothing is left to kill

// bySignal is what the signal means that ended a process; nil if none did.
func bySignal(exit *exec.ExitError) error {
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return nil
	}
	switch status.Signal() {
	case syscall.SIGXCPU, syscall.SIGXFSZ:
		return ErrLimit
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return errKilled
	default:
		return ErrFailed
	}
}
