#!/usr/bin/env bash
# Runs the bundled proxier through all disruptions that must drop no connection, for docs/results/zero-loss.md. On the same seeds it runs
# kube-proxy in IPVS mode and a red twin: the bundled proxier with a fault, or kube-proxy if it has the fault itself. Each zero needs a
# loss of the red twin. RUNS=8 takes half an hour for each row on two idle cores, and more than an hour for busy. Fewer
# RUNS do not change docs. ROWS=restart,kill runs only these rows.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/zero-loss out=out/zero-loss
runs=${RUNS:-8} asked=${ROWS:-rollout,flap,busy,restart,kill,upgrade,api-away,relist}
SUBSET=$asked check_subset row rollout flap busy restart kill upgrade api-away relist
twins=exec:suites/selfcheck/faulty ipvs=kube-proxy@v1.37.1/ipvs
[ "$runs" -ge 8 ] || results=out/results/zero-loss/looks
CGO_ENABLED=0 ${GO:-go} build -trimpath -gcflags=all=-dwarf=false -buildvcs=false -ldflags '-s -w' -o $out/ ./suites/selfcheck/faulty
cp "$(bin/hitless build "${ipvs%/*}" | cut -sf2 | head -n 1)" $out/kube-proxy
printf 'tcp 6 TCP\nudp 17 UDP\n' > $out/protocols # for hack/kube-proxy-at-once.yaml

compare() { # row, other subjects with the twin last, then arguments of `hitless compare`
  row=$1 others=$2 status=0; shift 2
  [[ ",$asked," == *",$row,"* ]] || return 0
  [ -z "${STALE:-}" ] || stale "$results/$row.json" || return 0
  # shellcheck disable=SC2086 # one argument for each subject
  bin/hitless compare "$@" --subject bundled $(printf -- '--subject %s ' $others) --controlplane replay --runs "$runs" \
    --out "out/results/zero-loss/$row" || status=$?
  [ "$status" -le 1 ] || { echo "comparing $row ended with exit code $status; nothing of it is kept" >&2; exit "$status"; }
  mkdir -p "$results"
  bin/hitless results keep "out/results/zero-loss/$row" "$results/$row.json"
}

# Short windows: a run takes as long as its attempts, and kube-proxy needs some seconds for a flap.
short=(--set baseline=10s --set settle=10s)
open=(--set lanes=tcp-new,tcp-long "${short[@]}") # open connections must survive too
roll=(--set trafficPolicy=Cluster --set shutdownDelay=5s --set gracePeriod=10s "${short[@]}")
flaps=(--nodes 1 --set antiAffinity=off --set openConnections=8 --set unready=100ms --set stayOpen=1s --set watch=0s "${short[@]}") # of 2 pods

compare rollout "$ipvs $twins/skips-terminating.yaml" rollout --set rollouts=1 --set shutdownDelay=20s --set gracePeriod=30s "${short[@]}"
compare flap "$twins/readds-endpoints.yaml" flap --rate 10 --set flaps=100 --set askEvery=50ms "${flaps[@]}"
compare busy exec:hack/kube-proxy-at-once.yaml flap --rate 2 --set flaps=25 --set askEvery=4ms "${flaps[@]}"
compare restart "$ipvs $twins/flush-on-restart.yaml" restart "${open[@]}"
compare kill "$ipvs $twins/flush-on-restart.yaml" restart --set signal=KILL "${open[@]}"
compare upgrade "$ipvs $twins/flush-on-restart.yaml" upgrade --set to=itself "${open[@]}"
compare api-away "$ipvs $twins/keeps-endpoints.yaml" api --set away=5m --set relists=0 --rate 10 "${roll[@]}" # each attempt costs
compare relist "$ipvs $twins/keeps-endpoints.yaml" api --set away=0s --set relists=2 --rate 50 "${roll[@]}"
if [ "$runs" -lt 8 ]; then
  bin/hitless results "$results"/*.json
else
  ${GO:-go} run ./hack/docs
fi
