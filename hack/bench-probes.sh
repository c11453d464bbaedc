#!/usr/bin/env bash
# Measures the probe engine, fortio and vegeta in namespaces of the host's kernel, with root or in a user namespace. The tools are built
# from their modules, once. fortio after 1.68 needs a module that some registries lack. SHORT=1 measures the probe engine alone.
set -euo pipefail
cd "$(dirname "$0")/.."
trap 'exit 130' INT # else bash goes on after a program that was interrupted
tools="${HITLESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hitless}/tools/fortio-1.68.2+vegeta-12.12.0"
if [ -n "${SHORT:-}" ]; then
  tools=
elif [ ! -x "$tools/vegeta" ] || [ ! -x "$tools/fortio" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$tools"
  for spec in fortio.org/fortio@v1.68.2 github.com/tsenart/vegeta/v12@v12.12.0; do
    name=$(basename "${spec%%@*}"); [ "$name" = v12 ] && name=vegeta
    mkdir "$work/$name"
    # A separate module: `go install` would also request the list of versions.
    printf 'module tools\n\ngo 1.26.0\n\nrequire %s %s\n' "${spec%%@*}" "${spec##*@}" > "$work/$name/go.mod"
    (cd "$work/$name" && GOFLAGS=-mod=mod CGO_ENABLED=0 go build -o "$tools/$name" "${spec%%@*}")
  done
fi
mkdir -p out/bench
export HITLESS_BENCH_TOOLS="$tools" HITLESS_BENCH_PROGRAM="$PWD/bin/hitless" HITLESS_BENCH_OUT="$PWD/out/bench/probes.json"
# The benchmark's session gets priority where that is allowed, so that other work on the machine is not measured too.
# Ctrl-C does not reach the session, and bash waits for a program in the foreground before it runs a trap. A shell starts programs beside it
# without the signal.
env --default-signal=INT setsid -w bash -c '{ echo -19 > /proc/self/autogroup; } 2>/dev/null || true; exec "$@"' bench \
  unshare -rnm hack/gotest.sh -count=1 -timeout 5m -tags netns,bench -run '^TestBenchProbes$' ./probes &
measurement=$!
# The session may not have begun yet.
trap 'kill -INT -- -"$measurement" 2>/dev/null || kill -INT "$measurement" 2>/dev/null || true; wait; exit 130' INT TERM
wait "$measurement"
cat "${HITLESS_BENCH_OUT%.json}.md"
