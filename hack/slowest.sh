#!/usr/bin/env bash
# Prints the slowest tests, the test programs that took most CPU time and the skipped tests, from the folder HITLESS_TIMES (out/times), which
# hack/gotest.sh fills. The exit code is that of hack/skips.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
times=${HITLESS_TIMES:-out/times}
# first prints the first lines of its input; head would end the pipe.
first() { awk -v n="$1" 'NR <= n'; }
printf '\n== slowest tests, wall time\n'
cat "$times"/tests-*.json | go tool -modfile=hack/tools/go.mod gotestsum tool slowest --num 15
if compgen -G "$times/specs-*.tsv" >/dev/null; then
  printf '\n== slowest specs, wall time in seconds (runs that specs share begin with the first one)\n'
  sort -t"$(printf '\t')" -k1,1gr "$times"/specs-*.tsv | first 15
fi
printf '\n== test programs by CPU time, in seconds: wall, CPU, rest of the wall time\n'
awk -F'\t' '{ cpu = $2 + $3; rest = $1 - cpu; if (rest < 0) rest = 0; printf "%.1f\t%.1f\t%.1f\t%s\n", $1, cpu, rest, $4 }' "$times/programs.tsv" |
  sort -t"$(printf '\t')" -k2,2gr | first 20
hack/skips.sh
