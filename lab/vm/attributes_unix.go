//go:build unix && !linux

package vm

import "syscall"

// qemuAttributes make a process group. QEMU outlives this process if that is killed with SIGKILL.
func qemuAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
