#!/usr/bin/env bash
# Measures the bundled proxier beside kube-proxy, all subjects in one VM with the virtual clock: changes at 100 and 1,000 Services are
# the median of three, those at 10,000 single ones, since one round of them takes an hour on one core. SERVICES=100,1000 measures
# these alone, REPEAT times each.
set -euo pipefail
mkdir -p out/bench

measure() { # sizes, repeats, name of the results
  bin/hitless bench-proxier --services "$1" --repeat "$2" --out "out/bench/$3" > "out/bench/$3.md"
  cat "out/bench/$3.md"
}

if [ -n "${SERVICES:-}" ]; then
  measure "$SERVICES" "${REPEAT:-3}" proxier
else
  measure 100,1000 3 proxier
  measure 10000 1 proxier-10000
fi
