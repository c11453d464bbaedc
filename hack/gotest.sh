#!/usr/bin/env bash
# `go test` as all scripts call it; gotestsum shows its progress. Programs without debugging information link twice as fast, and `make lint` vets.
# With HITLESS_TIMES=FOLDER the times of tests and of their programs are added to the folder; hack/slowest.sh prints them.
set -euo pipefail
hack=$(cd "$(dirname "$0")" && pwd)
go=${GO:-go}
shown=() measured=()
if [ -n "${HITLESS_TIMES:-}" ]; then
  mkdir -p "$HITLESS_TIMES"
  shown=(--jsonfile "$(mktemp "$HITLESS_TIMES/tests-XXXXXX.json")")
  measured=(-exec "$hack/timed.sh")
fi
exec "$go" tool -modfile="$hack/tools/go.mod" gotestsum --format pkgname --format-hide-empty-pkg "${shown[@]}" --raw-command -- \
  "$go" test -json -trimpath -gcflags=all=-dwarf=false -vet=off -ldflags=-w "${measured[@]}" "$@"
