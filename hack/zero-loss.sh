#!/usr/bin/env bash
# Runs the bundled proxier through all disruptions that must drop no connection, for docs/results/zero-loss.md. On the same seeds it runs
# kube-proxy in IPVS mode and a red twin: the bundled proxier with a fault, or kube-proxy if it has the fault itself. Each zero needs a
# loss of the red twin. RUNS=8 takes 16 to 23 minutes for each row, two rows at a time, and 65 for busy. Fewer RUNS do not change docs. Rows with a
# file in docs/results/zero-loss are not run again, unless FORCE=1. SUBSET=restart,kill runs only these rows. A row that fails does not stop the
# others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/zero-loss out=out/zero-loss
runs=${RUNS:-8}
[ "$runs" -ge 8 ] || { results=out/results/zero-loss/looks; export FORCE=1; }
valid=1
twins=exec:suites/selfcheck/faulty ipvs=kube-proxy@v1.37.1/ipvs
common=(--controlplane replay --runs "$runs")

zero() { # row, other subjects with the twin last, then arguments of `hitless compare`
  # shellcheck disable=SC2046,SC2086 # one argument for each subject
  row "$1" "${@:3}" $(printf -- '--subject %s ' bundled $2)
}

# Short windows: a run takes as long as its attempts, and kube-proxy needs some seconds for a flap.
short=(--set baseline=10s --set settle=10s)
open=(--set "lanes=tcp-new,tcp-long" "${short[@]}") # open connections must survive too
roll=(--set trafficPolicy=Cluster --set shutdownDelay=5s --set gracePeriod=10s "${short[@]}")
flaps=(--nodes 1 --set antiAffinity=off --set openConnections=8 --set unready=100ms --set stayOpen=1s --set watch=0s "${short[@]}") # of 2 pods

zero rollout "$ipvs $twins/skips-terminating.yaml" rollout --set rollouts=1 --set shutdownDelay=20s --set gracePeriod=30s "${short[@]}"
zero flap "$twins/readds-endpoints.yaml" flap --rate 10 --set flaps=100 --set askEvery=50ms "${flaps[@]}"
zero busy exec:hack/kube-proxy-at-once.yaml flap --rate 2 --set flaps=25 --set askEvery=4ms "${flaps[@]}"
zero restart "$ipvs $twins/flush-on-restart.yaml" restart "${open[@]}"
zero kill "$ipvs $twins/flush-on-restart.yaml" restart --set signal=KILL "${open[@]}"
zero upgrade "$ipvs $twins/flush-on-restart.yaml" upgrade --set to=itself "${open[@]}"
zero api-away "$ipvs $twins/keeps-endpoints.yaml" api --set away=5m --set relists=0 --rate 10 "${roll[@]}" # each attempt costs
zero relist "$ipvs $twins/keeps-endpoints.yaml" api --set away=0s --set relists=2 --rate 50 "${roll[@]}"
list "${all[@]}"

CGO_ENABLED=0 ${GO:-go} build -trimpath -gcflags=all=-dwarf=false -buildvcs=false -ldflags '-s -w' -o $out/ ./suites/selfcheck/faulty
# put writes a file for hack/kube-proxy-at-once.yaml in one step, because rows that run beside this one read it.
put() { cat > "$out/$1.$$"; chmod 755 "$out/$1.$$"; mv "$out/$1.$$" "$out/$1"; }
put kube-proxy < "$(bin/hitless build "${ipvs%/*}" | cut -sf2 | head -n 1)"
printf 'tcp 6 TCP\nudp 17 UDP\n' | put protocols
compare_rows 1200
[ "$runs" -ge 8 ] || bin/hitless results "$results"/*.json
