#!/usr/bin/env bash
# Runs the bundled proxier and kube-proxy in IPVS mode through everything that must cost no connection, on the same seeds. The
# zeros of one count beside the losses of the other. RUNS=N takes N seeds; with 8 it is work for a night.
set -euo pipefail
runs=${RUNS:-8}
compare() { # name, then the words of `hitless compare`
  name=zero-loss-$1; shift
  status=0
  bin/hitless compare "$@" --subject bundled --subject kube-proxy@v1.37.1/ipvs --controlplane replay --runs "$runs" \
    --out "out/results/$name" || status=$?
  [ "$status" -le 1 ] || { echo "comparing $name ended with exit code $status; nothing of it is kept" >&2; exit "$status"; }
  mkdir -p docs/results
  cp "out/results/$name/compare.json" "docs/results/$name.json"
}
compare rollout rollout
compare flap flap --set flaps=100 --set openConnections=8 --set askEvery=100ms --set unready=1s --set watch=30s # of 2 pods
compare restart restart
compare kill restart --set signal=KILL
compare api-away api --set away=5m --set relists=0
compare relist api --set away=0s --set relists=3
bin/hitless results docs/results/zero-loss-*.json
