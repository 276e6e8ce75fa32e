package ffmpeg

import (
	"os"
	"os/exec"
)

// isolate keeps our variables from a process.
func isolate(cmd *exec.Cmd) { cmd.Env = []string{} }

// killGroup ends the process; this system has no groups of them. The decoders that are asked for start no children.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it fails where nothing is left to kill
	}
}

// bySignal knows no signals on this system.
func bySignal(*exec.ExitError) error { return nil }
