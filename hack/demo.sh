#!/usr/bin/env bash
# The first run on a machine: packages are installed and the control plane is built while hitless is compiled, and `hitless demo` does the
# rest. It can be called again.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
# Compilers keep their garbage where there is memory for it, as those of lab/build do: 23% less CPU time for a large package.
if [ -z "${GOGC:-}${GOMEMLIMIT:-}" ] && [ "$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)" -ge $(((4 * $(nproc) + 1) * 1024)) ]; then
  compiler=(env GOGC=off GOMEMLIMIT=1024MiB)
else
  compiler=(env)
fi
if [ ! -x bin/hitless ]; then
  cat >&2 <<TEXT
The first time, with nothing in caches and two CPUs, this takes about 7 minutes, most of which compiles Kubernetes:
packages and hitless are there after 2 minutes, a first result after 3, and the result with the real control plane after 7.
Later calls only run, for about 2 minutes.
TEXT
  case " $* " in
  *" --programs"* | *" --binaries"*) ;;
  *)
    # `hitless demo` waits for the programs that this builds, and tells why where they cannot be built.
    mkdir -p bin
    "${compiler[@]}" go build -trimpath -gcflags=all=-dwarf=false -buildvcs=false -ldflags '-s -w' -o bin/controlplane ./hack/controlplane
    bin/controlplane &
    trap 'kill $! 2>/dev/null || true; wait' EXIT
    ;;
  esac
fi
"${compiler[@]}" make --no-print-directory -j2 packages build
bin/hitless demo "$@"
