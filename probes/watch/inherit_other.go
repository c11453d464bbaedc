//go:build !unix

package watch

import "syscall"

func ownSession() *syscall.SysProcAttr { return nil }

// inherited is false: no descriptors are passed on here.
func inherited(int, int) bool { return false }
