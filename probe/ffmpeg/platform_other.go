//go:build !linux

package ffmpeg

// limit does nothing: there is no way to limit a process that runs. What remains are the limits of this package's own.
func limit(int, Limits) error { return nil }

// reap waits for the process's end and ends what it left behind.
func (p *Process) reap() {
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	killGroup(p.cmd.Process.Pid) // the number is another's only if it was given away within microseconds
	p.exit = err
	p.reaped = true
}
