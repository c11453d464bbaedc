#!/usr/bin/env bash
# Runs upstream's suite against five proxies, for docs/upstream-e2e.md. Rows with a file in docs/results/upstream-e2e are not run again, unless
# FORCE=1, or STALE=1 and another program made them. It takes four hours on a machine that does nothing else: the suite waits with fixed limits.
#   SUBSET   only these rows, separated by commas
# Exit code: 0 each row has a result, 1 one has none.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/upstream-e2e work=out/results/upstream-e2e
today=kube-proxy@v1.37.1
rolling='LoadBalancers.*connectivity disruption' usual='\[Disruptive\]'
# Name, subject, specs at a time in a VM, FOCUS and SKIP; - for the default. A VM runs the two slow specs of rolling updates by themselves.
rows=(
  "v1.37.1-nftables|$today/nftables|-|-|-"
  "v1.37.1-nftables-conformance|$today/nftables|-|\[sig-network\].*\[Conformance\]|-"
  "v1.37.1-iptables|$today/iptables|-|-|-"
  "v1.37.1-iptables-traffic-distribution|$today/iptables|-|\[sig-network\] Traffic Distribution|-"
  "v1.37.1-ipvs|$today/ipvs|2|-|$usual|connectivity disruption"
  "v1.37.1-ipvs-rolling-update|$today/ipvs|2|$rolling|-"
  "bundled|bundled|2|-|$usual|connectivity disruption"
  "bundled-rolling-update|bundled|2|$rolling|-"
  "v1.25.3-iptables|kube-proxy@v1.25.3/iptables|-|-|-"
)
choose row '|' tsv "${rows[@]}"

mkdir -p "$results" "$work"
failed=() begun=$(date +%s)
for i in "${!todo[@]}"; do
  IFS='|' read -r name subject procs focus skip <<< "${todo[$i]}"
  announce row "$i" "${#todo[@]}" "$name" "$begun" 1600
  settings=("SUBJECT=$subject" "OUT=$work/$name")
  [ "$procs" = - ] || settings+=("PROCS=$procs")
  [ "$focus" = - ] || settings+=("FOCUS=$focus")
  [ "$skip" = - ] || settings+=("SKIP=$skip")
  rm -rf "${work:?}/$name" # else an earlier run may be taken for this one
  status=0
  env "${settings[@]}" hack/upstream-e2e.sh > "$work/$name.log" 2>&1 || status=$?
  case $status in
    0 | 1) # a failed spec is a result too
      if [ -s "$work/$name/specs.tsv" ]; then
        cp "$work/$name/specs.tsv" "$results/$name.tsv"
      else
        failed+=("$name")
        tail -n 5 "$work/$name.log" >&2
      fi ;;
    130 | 143) echo "interrupted; the rows before are kept" >&2; exit "$status" ;;
    *) failed+=("$name"); tail -n 5 "$work/$name.log" >&2 ;;
  esac
done
${GO:-go} run ./hack/docs
[ ${#failed[@]} -eq 0 ] || { echo "no result of ${failed[*]}; again with SUBSET=$(IFS=,; echo "${failed[*]}")" >&2; exit 1; }
