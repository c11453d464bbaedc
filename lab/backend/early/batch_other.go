//go:build !linux

package early

// waitForSleepers does nothing: pods run on Linux only.
func waitForSleepers() {}
