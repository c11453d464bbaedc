//go:build unix

package input

import "golang.org/x/sys/unix"

// dontWait opens a named pipe or a terminal without waiting for its other end.
const dontWait = unix.O_NONBLOCK | unix.O_NOCTTY
