#!/usr/bin/env bash
# Runs the bundled proxier through everything that must cost no connection, and on the same seeds kube-proxy in IPVS mode and a
# twin: the bundled proxier with a fault that each row must see. The zeros of the first count beside the losses of the last, which is
# checked. Writes the table of docs/proxier.md.
# RUNS=N takes N seeds: 8 are half an hour for each row on two idle cores; fewer are a look, and leave docs alone. ROWS=restart,kill
# takes these rows only.
set -euo pipefail
results=docs/results/zero-loss
runs=${RUNS:-8} rows=${ROWS:-rollout,flap,restart,kill,upgrade,api-away,relist}
twins=suites/selfcheck/faulty
[ "$runs" -ge 8 ] || results=out/results/zero-loss/looks
CGO_ENABLED=0 ${GO:-go} build -trimpath -buildvcs=false -ldflags '-s -w' -o out/zero-loss/ ./$twins

compare() { # row, the twin's file, then the words of `hitless compare`
  row=$1 twin=$2 status=0; shift 2
  [[ ",$rows," == *",$row,"* ]] || return 0
  subjects=(--subject bundled --subject kube-proxy@v1.37.1/ipvs --subject "exec:$twins/$twin.yaml")
  bin/hitless compare "$@" "${subjects[@]}" --controlplane replay --runs "$runs" --out "out/results/zero-loss/$row" || status=$?
  [ "$status" -le 1 ] || { echo "comparing $row ended with exit code $status; nothing of it is kept" >&2; exit "$status"; }
  mkdir -p "$results"
  cp "out/results/zero-loss/$row/compare.json" "$results/$row.json"
}

# Windows are short: the time of a run is that of its attempts.
short=(--set baseline=10s --set settle=10s)
open=(--set lanes=tcp-new,tcp-long "${short[@]}") # what is open must survive too
roll=(--rate 50 --set trafficPolicy=Cluster --set shutdownDelay=5s --set gracePeriod=10s "${short[@]}")

compare rollout skips-terminating rollout --set rollouts=1 --set shutdownDelay=20s --set gracePeriod=30s "${short[@]}"
compare flap readds-endpoints flap --rate 10 --nodes 1 --set flaps=100 --set antiAffinity=off --set openConnections=8 --set askEvery=200ms \
  --set unready=1100ms --set stayOpen=1s --set watch=10s "${short[@]}" # of 2 pods
compare restart flush-on-restart restart "${open[@]}"
compare kill flush-on-restart restart --set signal=KILL "${open[@]}"
compare upgrade flush-on-restart upgrade --set to=itself "${open[@]}"
compare api-away keeps-endpoints api --set away=5m --set relists=0 "${roll[@]}" --rate 10 # the minutes away are long, and each attempt costs
compare relist keeps-endpoints api --set away=0s --set relists=2 "${roll[@]}"
if [ "$runs" -lt 8 ]; then
  bin/hitless results "$results"/*.json
else
  ${GO:-go} test ./cmd/hitless -count=1 -run TestTheProxiersPageHasTheCommittedRuns -update
fi
