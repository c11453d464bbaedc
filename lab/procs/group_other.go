//go:build !linux

package procs

import "os"

// Group is a control group of Linux; other systems have none.
type Group struct{}

// Open returns no directory.
func (*Group) Open() (*os.File, error) { return nil, nil }
