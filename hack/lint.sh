#!/usr/bin/env bash
# gofmt, vet, staticcheck (hack/tools/go.mod pins it, and no registry is asked) and shellcheck. No output is a clean tree.
set -euo pipefail
export GOFLAGS='-trimpath -gcflags=all=-dwarf=false' # as `make build` and the tests, so that no package is compiled twice
files=$(git ls-files '*.go') # a failure within another substitution would be lost
[ -n "$files" ] || { echo "git ls-files finds no program" >&2; exit 1; }
# shellcheck disable=SC2086 # one argument for each file
bad=$(gofmt -l $files)
[ -z "$bad" ] || { echo "not gofmt-ed: $bad" >&2; exit 1; }
tools=$PWD/hack/tools/go.mod
# check vets packages with tags.
check() {
  go vet -tags "$1" "${@:2}"
  go tool -modfile="$tools" staticcheck -tags "$1" -checks 'all,-ST1000,-ST1003,-ST1005,-ST1016,-ST1020,-ST1021,-ST1022,-QF*' "${@:2}"
}
without=$(git grep -lE '^//go:build .*!(lab|nightly|netns|bench|browser)' -- '*.go' | xargs dirname | sort -u | sed 's|^|./|') ||
  { echo "git grep finds no file that a tag leaves out" >&2; exit 1; }
# One pass with all tags compiles packages once. The others check the files that a tag leaves out, and the portable probe engine.
check lab,nightly,netns,bench,browser ./...
# shellcheck disable=SC2086 # one argument for each package
check '' $without
go vet -tags portable ./probes # staticcheck would miss the users of what only Linux uses
# The programs and tests of deploy are modules of their own.
(cd deploy/image && check lab .)
(cd deploy/foreign && check '' .)
scripts=$(git ls-files '*.sh' .ci/run)
# shellcheck disable=SC2086 # one argument for each script
shellcheck -x $scripts
