#!/usr/bin/env bash
# The Conformance specs of Services of Kubernetes' own e2e suite, for CI: kube-proxy v1.37.1 must pass them all. Beside them the red twin runs,
# one spec that kube-proxy v1.25.3 must fail, since it does not use terminating endpoints. `make nightly` has these specs too.
# Exit code: 0 as wanted, 1 otherwise. The results are in out/upstream-e2e-sample.
set -euo pipefail
cd "$(dirname "$0")/.."
out=out/upstream-e2e-sample
rm -rf "$out" && mkdir -p "$out"
trap 'exit 130' INT # else bash goes on after a suite that was interrupted
bin/hitless build e2e.test@v1.37.1 ginkgo@v2.32.0 kubectl@v1.37.1 agnhost@v1.37.1 coredns@v1.15.0 >"$out/programs.txt"
# suite runs specs within the time that CI has for them.
suite() { # name, subject, regular expression of specs
  SUBJECT=$2 FOCUS=$3 OUT=$out/$1 TIMEOUT=5m hack/upstream-e2e.sh >"$out/$1.log" 2>&1
}
begin=$SECONDS
red=0 green=0
set -m # the red twin is a process group of its own
suite red kube-proxy@v1.25.3/iptables 'Services should fallback to terminating endpoints .* with internalTrafficPolicy=Cluster' &
twin=$!
set +m
trap 'if kill -INT -- -"$twin" 2>/dev/null; then wait "$twin" || true; fi' EXIT # after Ctrl-C, which decides the exit code; the twin's own says nothing
suite green kube-proxy@v1.37.1/nftables '\[sig-network\] Services.*\[Conformance\]' || green=$?
wait "$twin" || red=$?
cat "$out"/green.log "$out"/red.log
# Without a match grep fails; the last line judges.
echo "upstream-e2e-sample: $(grep -c ^passed "$out/green/specs.tsv" || true) specs passed with v1.37.1, exit code $green; exit code $red with v1.25.3, which must be 1; $((SECONDS - begin)) s"
[ "$green" = 0 ] && [ "$red" = 1 ] && [ "$(grep -v '^#' "$out/red/specs.tsv" | cut -f1)" = failed ]
