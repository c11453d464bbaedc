#!/usr/bin/env bash
# Tests on real kernels. The suites run in VMs, with the time that most other tests leave: those of live clusters use
# the real clock and little CPU time.
set -euo pipefail
cd "$(dirname "$0")/.."
test=("$PWD/hack/gotest.sh" -count=1 -timeout 80m)
# Suites in the order of their length; the specs of kernels are all on this machine's kernel.
suites=(museum attacks subjects shards conformance selfcheck cost migration proxier rollout)
for suite in suites/*/; do
  name=$(basename "$suite")
  if [[ " ${suites[*]} kernels " != *" $name "* ]]; then suites+=("$name"); fi
done
# specs runs the suites below any other process.
specs() {
  chrt --idle --pid 0 $BASHPID
  "${test[@]}" -p 3 -tags lab "${suites[@]/#/./suites/}" -ginkgo.label-filter='!nightly && !host' # packages stand before flags of their programs
}
# on runs the lab tests of a package whose names match a pattern; `make unit` has run its other tests.
on() { # package, pattern, then options of grep
  local tests
  tests=$(sed -n 's/^func \(Test[A-Za-z0-9]*\)(t .*/\1/p' "$1"/*_lab_test.go | grep "${@:3}" -- "$2" | paste -sd'|') || { echo "lab-test.sh: no lab test of $1 matches ${*:2}" >&2; return 1; }
  "${test[@]}" -tags lab -run "^($tests)\$" "./$1"
}

hack/prometheus.sh
PATH=$PWD/out/prometheus/usr/bin:$PATH
mkdir -p out
bin/hitless build control-plane kube-proxy@v1.37.1 kube-proxy@v1.26.0 kube-proxy@v1.25.3 # of live tests, which run beside suites
# Labs on this machine's kernel measure with the real clock: one suite at a time. The VMs begin
# later: beside them attempts began 90 to 127 ms late in two CI runs, and 50 ms are allowed.
"${test[@]}" -p 1 -tags lab ./suites/kernels ./suites/selfcheck -ginkgo.label-filter='host && !nightly'
trap 'exit 130' INT # else bash goes on after tests that were interrupted
set -m # the suites are a process group of their own
specs >out/suites.log 2>&1 &
running=$!
set +m # Ctrl-C reaches this script only if the other tests are of its process group
trap 'if kill -0 -- -"$running" 2>/dev/null; then kill -- -"$running"; fi' EXIT # after a failure or Ctrl-C
SHORT=1 hack/bench-probes.sh
hack/upstream-e2e-sample.sh
on lab/host .
on internal/clusterwatch .
on internal/run '^TestLive'
on internal/run '^TestLive' -v
(cd deploy/image && "${test[@]}" -tags lab -run '^TestHitlessIsOneImage$' .) # `make unit` has run the others
hack/netns.sh
(cd deploy/foreign && "${test[@]}" .)
status=0
wait "$running" || status=$?
cat out/suites.log
trap - EXIT
# The log of a failed suite is long, and Ginkgo's summary has no reasons: they stand once more at the end.
if ((status)); then
  printf '\n== why specs failed\n'
  grep --text -A 12 '\[FAILED\]' out/suites.log | cut -c 1-400 | tail -200
fi
exit "$status"
