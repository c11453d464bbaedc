//go:build !unix

package subject

import "syscall"

// signalOf knows the signals of Go's standard library only: no subject runs here.
func signalOf(name string) syscall.Signal {
	return map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "QUIT": syscall.SIGQUIT, "HUP": syscall.SIGHUP}[name]
}
