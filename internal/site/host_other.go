//go:build !linux

package site

import (
	"context"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/tools"
)

// onHost is never called: CheckPlatform refuses before.
func onHost(*lab) Site { return nil }

// tryHost fails: namespaces are Linux's.
func (l *lab) tryHost(context.Context) error { return CheckPlatform() }

// TryHost fails: namespaces are Linux's.
func TryHost(context.Context, string, string, func(context.Context) (tools.Set, error)) error {
	return CheckPlatform()
}

// HoldLab fails: namespaces are Linux's.
func HoldLab(context.Context, Call, LabOptions, guest.Plan, subject.Spec, string, func()) error {
	return CheckPlatform()
}

// LabShell fails: namespaces are Linux's.
func LabShell(context.Context, string, []string) ([]string, error) { return nil, CheckPlatform() }
