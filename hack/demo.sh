#!/usr/bin/env bash
# The first run on a machine: packages are installed while hitless is built, and `hitless demo` does the rest. It can be called again.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x bin/hitless ]; then
  cat >&2 <<TEXT
The first time, with nothing in caches and two CPUs, this takes about 8 minutes, most of which compiles Kubernetes:
packages and hitless are there after 2 minutes, a first result after 3, and the result with the real control plane after 8.
Later calls only run, for about 2 minutes.
TEXT
fi
# Compilers keep their garbage where there is memory for it, as those of lab/build do: 23% less CPU time for a large package.
if [ -z "${GOGC:-}${GOMEMLIMIT:-}" ] && [ "$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)" -ge $(((2 * $(nproc) + 1) * 1024)) ]; then
  GOGC=off GOMEMLIMIT=1024MiB make --no-print-directory -j2 packages build
else
  make --no-print-directory -j2 packages build
fi
exec bin/hitless demo "$@"
