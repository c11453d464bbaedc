#!/usr/bin/env bash
# gofmt, vet and staticcheck (pinned). No output is a clean tree.
set -eu
bad=$(gofmt -l $(git ls-files '*.go'))
[ -z "$bad" ] || { echo "not gofmt-ed: $bad" >&2; exit 1; }
# One pass with all tags checks every file, and compiles packages once.
go vet -tags lab,nightly,netns,bench,browser ./...
go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -tags lab,nightly,netns,bench,browser -checks 'all,-ST1000,-ST1003,-ST1005,-ST1016,-ST1020,-ST1021,-ST1022,-QF*' ./...
# The programs and tests of deploy are modules of their own.
(cd deploy/image && go vet -tags lab .)
(cd deploy/foreign && go vet .)
