//go:build !linux

package site

import (
	"context"

	"github.com/hitless/hitless/internal/guest"
	"github.com/hitless/hitless/lab/subject"
)

// onHost is never called: CheckPlatform refuses before.
func onHost(*lab) Site { return nil }

// TryHost fails: namespaces are Linux's.
func TryHost(context.Context, string, string) error { return CheckPlatform() }

// HoldLab fails: namespaces are Linux's.
func HoldLab(context.Context, Call, LabOptions, guest.Plan, subject.Spec, string, func()) error {
	return CheckPlatform()
}

// LabShell fails: namespaces are Linux's.
func LabShell(context.Context, string, []string) ([]string, error) { return nil, CheckPlatform() }
