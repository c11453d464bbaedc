#!/usr/bin/env bash
# Measures the bundled proxier beside kube-proxy, all subjects in one VM with the virtual clock, and writes the tables of docs/proxier.md:
# changes at 100 and 1,000 Services are the median of three, those at 10,000 single ones, since one round of them takes an hour on one
# core. SERVICES=100,1000 measures these alone, REPEAT times each, and leaves docs alone.
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
  ${GO:-go} test ./cmd/hitless -count=1 -run TestTheProxiersPageHasTheCommittedBenchmark -update
fi
