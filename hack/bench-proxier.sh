#!/usr/bin/env bash
# Measures the bundled proxier and kube-proxy in one VM with the virtual clock, for docs/results/proxier-cost.md. Changes at 100 and
# 1,000 Services are medians of three; those at 10,000 are single ones, because a round of them takes an hour on one core.
# SERVICES=100,1000 measures only these, REPEAT times each, and does not change docs.
set -euo pipefail
results=docs/results/bench out=out/bench
mkdir -p "$out"

measure() { # sizes, repeats, name of the results
  bin/hitless bench-proxier --services "$1" --repeat "$2" --out "$out/$3" > "$out/$3.md"
  cat "$out/$3.md"
}

if [ -n "${SERVICES:-}" ]; then
  measure "$SERVICES" "${REPEAT:-3}" proxier
else
  measure 100,1000 3 proxier
  measure 10000 1 proxier-10000
  mkdir -p "$results"
  cp "$out/proxier.json" "$out/proxier-10000.json" "$results/"
  ${GO:-go} run ./hack/docs
fi
