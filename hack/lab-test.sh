#!/usr/bin/env bash
# Tests on real kernels; `make lint` vets them. Tests of live clusters use the real clock and little CPU time; meanwhile the first suites run
# in VMs, with the time that is left. Programs without DWARF link twice as fast.
set -euo pipefail
cd "$(dirname "$0")/.."
test=("${GO:-go}" test -count=1 -trimpath -vet=off -ldflags=-w -timeout 60m)
first=(attacks cost detection drain soak)
rest=()
for suite in suites/*/; do
  name=$(basename "$suite")
  if [[ " ${first[*]} " != *" $name "* ]]; then rest+=("./suites/$name"); fi
done
# specs runs suites. Their VMs leave the CPU to labs on this machine's kernel, which need it in time and have a priority of their own.
specs() { nice -n 5 "${test[@]}" -tags lab "$@" -ginkgo.label-filter='!nightly && !host'; } # packages stand before flags of their programs
# onHost runs the specs whose labs are on this machine's kernel, before other suites take the CPUs. Their own locks let them start beside the
# first suites, whose VMs leave the CPU to them.
onHost() {
  local locks status=0
  locks=$(mktemp -d)
  TMPDIR=$locks nice -n 19 "${test[@]}" -tags lab ./suites/kernels ./suites/selfcheck -ginkgo.label-filter='host && !nightly' || status=$?
  rm -r "$locks"
  return "$status"
}
# on runs the lab tests of a package whose names match a pattern; `make unit` has run its other tests.
on() { # package, pattern, then options of grep
  local tests
  tests=$(sed -n 's/^func \(Test[A-Za-z0-9]*\)(t .*/\1/p' "$1"/*_lab_test.go | grep "${@:3}" -- "$2" | paste -sd'|')
  "${test[@]}" -tags lab -run "^($tests)\$" "./$1"
}
programs() { # of the lab, and the modules of deploy
  on internal/run '^TestLive' -v
  (cd deploy/image && "${test[@]}" -tags lab .)
  (cd deploy/foreign && "${test[@]}" .)
}

hack/prometheus.sh
PATH=$PWD/out/prometheus/usr/bin:$PATH
mkdir -p out
set -m # each background job is a process group of its own
started=() logs=()
begin() { # log, then the command
  ( "${@:2}" ) >"$1" 2>&1 &
  started+=($!) logs+=("$1")
}
trap 'for job in "${started[@]}"; do if kill -0 -- -"$job" 2>/dev/null; then kill -- -"$job"; fi; done' EXIT # after a failure or Ctrl-C

idle() { chrt --idle --pid 0 $BASHPID; specs "$@"; } # any other process runs before
begin out/first-suites.log idle "${first[@]/#/./suites/}"
on lab/host .
on internal/clusterwatch .
on internal/run '^TestLive'
onHost
begin out/programs.log programs
status=0
specs "${rest[@]}" || status=$?
for i in "${!started[@]}"; do
  wait "${started[$i]}" || status=$?
  cat "${logs[$i]}"
done
trap - EXIT
exit "$status"
