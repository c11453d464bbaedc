package site

import (
	"errors"
	"strings"
	"testing"
)

// A VM runs on Linux and macOS, and namespaces on linux/amd64. Elsewhere one line says what is missing and what runs instead.
func TestPlatformsOfLabs(t *testing.T) {
	type check func(system, processor string) error
	for _, c := range []struct {
		name    string
		check   check
		runs    []string
		missing []string
		instead string
	}{
		{"a VM", checkPlatform, []string{"linux/amd64", "linux/arm64", "darwin/arm64", "darwin/amd64"}, []string{"windows/amd64"}, "--kubeconfig"},
		{"namespaces", checkHostPlatform, []string{"linux/amd64"}, []string{"linux/arm64", "darwin/arm64", "darwin/amd64", "windows/amd64"}, "--kernel vm"},
	} {
		for _, p := range c.runs {
			system, processor, _ := strings.Cut(p, "/")
			if err := c.check(system, processor); err != nil {
				t.Errorf("%s on %s: %v", c.name, p, err)
			}
		}
		for _, p := range c.missing {
			system, processor, _ := strings.Cut(p, "/")
			err := c.check(system, processor)
			if !errors.As(err, new(UsageError)) || !strings.Contains(err.Error(), p) || !strings.Contains(err.Error(), c.instead) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s on %s: %v", c.name, p, err)
			}
		}
	}
}
