package kernel

import (
	"errors"
	"slices"
	"syscall"
)

// refusals are the errors by which Linux says no to the very thing that it was asked for, and would say so again: a real server at
// a broadcast address (EINVAL of ip_vs_new_dest), a number out of range, a family, a protocol or an operation that it was built
// without, an address that no device can have. Not among them is what time, rights or another look at the kernel cure: too little
// memory (ENOMEM, ENOBUFS, ENOSPC), no permission, what exists already, what is gone (ENOENT, ESRCH, ENODEV: a table, a module or a
// device that may come back).
var refusals = []syscall.Errno{syscall.EINVAL, syscall.ERANGE, syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT, syscall.EOPNOTSUPP,
	syscall.EADDRNOTAVAIL}

// Refused reports whether an error is the kernel's answer that it does not take what it was asked for. Such an operation had no
// effect.
func Refused(err error) bool {
	return !errors.Is(err, ErrLost) && slices.ContainsFunc(refusals, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
