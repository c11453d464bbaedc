//go:build !linux

package run

import "runtime"

// ownCPUs is the number of CPUs that this process may use.
func ownCPUs() (int, error) { return runtime.NumCPU(), nil }
