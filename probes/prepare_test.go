//go:build !netns

package probes

// prepare makes the machine ready for the tests; these need nothing.
func prepare() error { return nil }
