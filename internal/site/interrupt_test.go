package site

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// An interrupt before a child program has answered is no missing program.
func TestInterruptedQuestionToQEMU(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := QEMUVersion(ended)
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "apt-get") || errors.As(err, new(UsageError)) {
		t.Errorf("%v", err)
	}
}
