#!/usr/bin/env bash
# Runs every disruption against the bundled proxier and kube-proxy's three modes with seed 1, for docs/results/disruptions.md: about an
# hour on two cores without KVM. Rows with a file in docs/results/disruptions are not run again, unless FORCE=1.
# ROWS=restart,flush runs only these rows.
set -euo pipefail
today=kube-proxy@v1.37.1 results=docs/results/disruptions
mkdir -p "$results"

compare() { # row, its subjects, then arguments of `hitless compare`
  row=$1 status=0 subjects=()
  for s in $2; do subjects+=(--subject "$s"); done
  shift 2
  [[ -z ${ROWS:-} || ",$ROWS," == *",$row,"* ]] || return 0
  [[ -n ${FORCE:-} || ! -e $results/$row.json ]] || return 0
  bin/hitless compare "$@" "${subjects[@]}" --rate 50 --set baseline=10s --set settle=10s --controlplane replay --runs 1 \
    --out "out/results/disruptions/$row" || status=$?
  case $status in
    0 | 1 | 3) cp "out/results/disruptions/$row/compare.json" "$results/$row.json" ;; # a run that is invalid is a result too
    *) echo "comparing $row ended with exit code $status; nothing of it is kept" >&2; exit "$status" ;;
  esac
}

all="bundled $today/ipvs $today/nftables $today/iptables"
open="--set lanes=tcp-new,tcp-long" # open connections must survive too

compare restart "$all" restart $open
compare restart-kill "$all" restart --set signal=KILL --set which=all $open
compare restart-freeze "$all" restart --set signal=STOP --set which=all --set downtime=10s $open
compare restart-change "$all" restart --set change=on --set shutdownDelay=15s
compare upgrade "$all" upgrade --set to=itself $open
compare drain "$all" drain --set off=30s
compare drain-local "$all" drain --set trafficPolicy=Local --set off=30s
compare drain-scaledown "$all" drain --set what=scaledown --set off=25s
compare drain-poweroff "$all" drain --set what=poweroff
compare drain-reboot "$all" drain --set what=reboot --set off=40s
compare flap "$all" flap --set watch=70s
compare policy "$all" policy --set between=5s
compare policy-nodeport "$all" policy --set between=5s --set target=nodePort
compare recreate "$all" recreate --set away=5s
compare api "$all" api --set away=40s --set relists=1 --set shutdownDelay=15s
compare api-late "$all" api --set away=0s --set relists=0 --set delay=30s --set trafficPolicy=Cluster --set shutdownDelay=35s --set gracePeriod=45s
compare scale "$all" scale --set away=10s
compare flush "$all" interference --set lasts=40s --set trafficPolicy=Cluster
compare reload "$all" interference --set what=reload --set lasts=40s --set trafficPolicy=Cluster
compare stale-drop "$all" interference --set what=stale-drop
compare stale-allow "$all" interference --set what=stale-allow
compare second "bundled $today/ipvs $today/nftables" interference --set what=second --set to=$today/iptables --set trafficPolicy=Cluster
compare migrate-nftables "$today/ipvs $today/iptables bundled" migrate --set to=$today/nftables
compare migrate-ipvs "$today/nftables $today/iptables bundled" migrate --set to=$today/ipvs
${GO:-go} run ./hack/docs
