package main

import (
	"context"
	"crypto/ed25519"

	"github.com/spf13/pflag"

	"github.com/hitless/hitless/internal/flags"
	"github.com/hitless/hitless/internal/input"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/reports"
)

// signFlag is --sign, of commands that write records.
func signFlag(f *pflag.FlagSet, file *string) {
	f.StringVar(file, "sign", "", "sign the seal of the record with this ed25519 key, a private PEM `FILE`: docs/pipelines.md")
	flags.Aside(f, "sign")
	flags.Place(f, "sign")
}

// verifyFlag is --verify-with, of commands that read finished runs.
func verifyFlag(f *pflag.FlagSet, file *string) {
	f.StringVar(file, "verify-with", "", "demand that records are signed with this ed25519 key, a public PEM `FILE`; others are invalid: docs/pipelines.md")
}

// verifyingKey reads the key of --verify-with; nil where none is given.
func verifyingKey(ctx context.Context, file string) (ed25519.PublicKey, error) {
	return input.ReadKey(ctx, "--verify-with", file, record.VerifyingKey)
}

// signingKey reads the key of --sign; nil where none is given.
func signingKey(ctx context.Context, file string) (ed25519.PrivateKey, error) {
	return input.ReadKey(ctx, "--sign", file, record.SigningKey)
}

// openRun opens the record of a finished run, and completes results whose run was killed while it stored them.
func openRun(ctx context.Context, dir, verify string) (*record.History, error) {
	key, err := verifyingKey(ctx, verify)
	if err != nil {
		return nil, err
	}
	if err := reports.Recover(dir); err != nil {
		return nil, err
	}
	return record.OpenSigned(dir, key)
}
