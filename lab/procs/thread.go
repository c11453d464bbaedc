package procs

import "runtime"

// lockThread keeps the calling goroutine on its thread for good. The thread ends with the goroutine.
func lockThread() { runtime.LockOSThread() }
