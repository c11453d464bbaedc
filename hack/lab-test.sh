#!/usr/bin/env bash
# Tests on real kernels; `make lint` vets them. Tests of live clusters use the real clock and one CPU; meanwhile the first suites run in VMs on another one.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
first=(attacks cost detection)
rest=()
for suite in suites/*/; do
  name=$(basename "$suite")
  if [[ " ${first[*]} " != *" $name "* ]]; then rest+=("./suites/$name"); fi
done
specs() { "$@" -count=1 -vet=off -timeout 60m -tags lab -ginkgo.label-filter='!nightly'; }

hack/prometheus.sh
PATH=$PWD/out/prometheus/usr/bin:$PATH
mkdir -p out
cpu=$(taskset -cp $$ | sed 's/.*[:, -]//') # the last CPU that this process may use
set -m # the background job is a process group of its own
( specs taskset -c "$cpu" "$go" test -p 1 "${first[@]/#/./suites/}" ) >out/first-suites.log 2>&1 &
background=$!
trap 'if kill -0 -- -$background 2>/dev/null; then kill -- -$background; fi' EXIT # after a failure or Ctrl-C
for dir in lab/host internal/clusterwatch internal/run; do # `make unit` has run the other tests of these packages
  tests=$(sed -n 's/^func \(Test[A-Za-z0-9]*\)(t .*/\1/p' "$dir"/*_lab_test.go | paste -sd'|')
  "$go" test -count=1 -vet=off -timeout 60m -tags lab -run "^($tests)\$" "./$dir"
done
(cd deploy/image && "$go" test -count=1 -tags lab .)
(cd deploy/foreign && "$go" test -count=1 .)
status=0
specs "$go" test "${rest[@]}" || status=$?
wait "$background" || status=$?
trap - EXIT
cat out/first-suites.log
exit "$status"
