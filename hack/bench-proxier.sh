#!/usr/bin/env bash
# Measures the bundled proxier and kube-proxy in one VM with the virtual clock, for docs/results/proxier-cost.md. Changes at 100 and
# 1,000 Services are medians of three; those at 10,000 are single ones, because a round of them takes an hour on one core.
# SERVICES=100,1000 measures only these, REPEAT times each, and does not change docs.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/bench out=out/bench
mkdir -p "$out"

measure() { # sizes, repeats, name of the results
  bin/hitless bench-proxier --services "$1" --repeat "$2" --out "$out/$3" > "$out/$3.md"
  cat "$out/$3.md"
}

if [ -n "${SERVICES:-}" ]; then
  measure "$SERVICES" "${REPEAT:-3}" proxier
else
  mkdir -p "$results"
  keep() { # arguments of measure
    [ -z "${STALE:-}" ] || stale "$results/$3.json" || return 0
    measure "$@"
    cp "$out/$3.json" "$results/"
  }
  keep 100,1000 3 proxier
  keep 10000 1 proxier-10000
  ${GO:-go} run ./hack/docs
fi
