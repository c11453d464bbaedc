//go:build !linux

package site

import (
	"context"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/tools"
)

// onHost is never called: CheckHostPlatform refuses before.
func onHost(*lab) Site { return nil }

// tryHost fails: namespaces are Linux's.
func (l *lab) tryHost(context.Context) error { return CheckHostPlatform() }

// TryHost fails: namespaces are Linux's.
func TryHost(context.Context, string, string, func(context.Context) (tools.Set, error)) error {
	return CheckHostPlatform()
}

// HoldLab fails: namespaces are Linux's.
func HoldLab(context.Context, Call, LabOptions, guest.Plan, subject.Spec, string, func()) error {
	return CheckHostPlatform()
}

// LabShell fails: namespaces are Linux's.
func LabShell(context.Context, string, []string) ([]string, error) { return nil, CheckHostPlatform() }
