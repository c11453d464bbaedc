//go:build unix

package build

import (
	"os/exec"
	"syscall"
)

// asGroup makes the command and its children a group, all of which the end of its context kills.
func asGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
