//go:build !unix

package vm

import "syscall"

func qemuAttributes() *syscall.SysProcAttr { return nil }
