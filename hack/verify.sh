#!/usr/bin/env bash
# Verifies runs of many scenarios with their packets, for docs/results/verified.md: about an hour on two idle cores. Runs with a file in
# docs/results/verified are not run again, unless FORCE=1. SUBSET=NAME,NAME runs only these. A run that disagrees does not stop the
# others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/verified work=out/results/verified
common=(--controlplane replay --capture --loop --rate 50 --set baseline=10s --set settle=10s)
old=kube-proxy@v1.25.3 new=kube-proxy@v1.37.1
# Name and arguments of `hitless run`, or of `hitless replay`. The first part loses connections, the second does not.
rows=(
  "rollout-1 rollout --set rollouts=1 --set terminatingFallback=off"
  "rollout-2 rollout --set rollouts=1 --set terminatingFallback=off --seed 2"
  "rollout-3 rollout --set rollouts=1 --set terminatingFallback=off --seed 3"
  "rollout-rst rollout --set rollouts=1 --set terminatingFallback=off --set close=rst"
  "rollout-ipv6 rollout --set rollouts=1 --set terminatingFallback=off --set family=ipv6"
  "rollout-haproxy rollout --set rollouts=1 --set terminatingFallback=off --set loadBalancer=haproxy"
  "rollout-short rollout --set rollouts=1 --set trafficPolicy=Cluster --set shutdownDelay=0s --set gracePeriod=1s"
  "rollout-v1.25.3-iptables rollout --set rollouts=1 --subject $old/iptables"
  "rollout-v1.25.3-ipvs rollout --set rollouts=1 --subject $old/ipvs"
  "fault fault"
  "flush-iptables interference --set what=flush --subject $new/iptables"
  "flush-nftables interference --set what=flush --subject $new/nftables"
  "reload interference --set what=reload"
  "stale-drop interference --set what=stale-drop"
  "poweroff drain --set what=poweroff --set off=30s"
  "poweroff-2 drain --set what=poweroff --set off=30s --seed 2"
  "reboot drain --set what=reboot --set off=30s"
  "scale scale --set away=10s"
  "scale-nftables scale --set away=10s --subject $new/nftables"
  "recreate recreate --set away=5s"
  "recreate-iptables recreate --set away=5s --subject $new/iptables"
  "timeline replay docs/examples/k8s-71515.timeline --subject kube-proxy@v1.12.2/ipvs"
  "churn churn --set for=5m --set rolloutEvery=2 --subject kube-proxy@v1.12.2/ipvs"
  "quiet quiet"
  "churn-bundled churn --set for=5m --set rolloutEvery=2"
  "rollout-bundled rollout --set rollouts=1"
  "rollout-nftables rollout --set rollouts=1 --subject $new/nftables"
  "restart restart"
  "restart-kill restart --set signal=KILL --subject $new/iptables"
  "policy policy --set between=3s"
  "flap flap --set openConnections=0 --set watch=20s"
  "api api --set away=20s --set relists=1"
  "upgrade upgrade --subject $old/iptables --set to=kube-proxy@v1.26.0/iptables --set roll=on --set replicas=2"
  "migrate migrate --subject $new/nftables --set to=$new/iptables --set lanes=tcp-new"
)

choose run ' ' json "${rows[@]}"

mkdir -p "$results" "$work"
failed=() begun=$(date +%s)
for i in "${!todo[@]}"; do
  read -r name args <<< "${todo[$i]}"
  announce run "$i" "${#todo[@]}" "$name" "$begun" 120
  rm -rf "${work:?}/$name" # else an earlier run may be taken for this one
  [[ $args == replay* ]] || args="run $args"
  status=0
  # shellcheck disable=SC2086 # no argument has a space
  bin/hitless $args "${common[@]}" --out "$work/$name" > "$work/$name.log" 2>&1 || status=$?
  case $status in
    0 | 1 | 3) ;; # a run that loses connections is what is to be verified; one that is invalid has packets too
    130 | 143) echo "interrupted; the runs before are kept" >&2; exit "$status" ;;
    *) failed+=("$name"); tail -n 5 "$work/$name.log" >&2; continue ;;
  esac
  status=0
  bin/hitless verify "$work/$name" --json > "$work/$name.json" || status=$?
  [ -s "$work/$name.json" ] && mv "$work/$name.json" "$results/$name.json"
  echo "  exit code $status of hitless verify"
  [ "$status" -eq 0 ] || failed+=("$name")
done
${GO:-go} run ./hack/docs
kept=()
for name in "${all[@]}"; do # a result of an earlier call can disagree too
  if [[ -e $results/$name.json && " ${failed[*]-} " != *" $name "* ]]; then kept+=("$results/$name.json"); fi
done
if [ ${#kept[@]} -gt 0 ] && ! doubted=$(${GO:-go} run ./hack/judge confirmed "${kept[@]}"); then
  for file in ${doubted:-"${kept[@]}"}; do failed+=("$(basename "$file" .json)"); done # without a word it has judged none
fi
[ ${#failed[@]} -eq 0 ] || { echo "not verified: ${failed[*]}" >&2; exit 1; }
