#!/usr/bin/env bash
# Runs the comparisons of docs/results/comparisons.md and the picture of README.md: about 20 minutes on two cores without KVM. Rows with a
# file in docs/results are not run again, unless FORCE=1. SUBSET=restart runs only this row. A row that fails does not stop the other; the
# exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results
common=(--controlplane replay --runs 4)
valid=1
today=kube-proxy@v1.37.1
# The pictures of README.md and docs/reports.md are both of the first run of the first subject. One of another run than the row's is made again:
# from the row's run if its folder is there, as after an interrupt, or else with the row.
first=out/results/rollout/kube-proxy-v1.25.3-iptables-seed-1 picture=docs/results/picture/report.json
# pictured succeeds if a report or the folder of a run is of the row's first run.
pictured() { [ -e "$1" ] && [ -e "$results/rollout.json" ] && ${GO:-go} run ./hack/judge first "$results/rollout.json" "$1"; }
force=${FORCE:-}
if [ ! -e "$picture" ] || stale "$picture" || ! { pictured "$picture" || pictured "$first"; }; then force=1; fi
FORCE=$force row rollout rollout --set rollouts=1 --subject kube-proxy@v1.25.3/iptables --subject kube-proxy@v1.26.0/iptables \
  --subject $today/ipvs --subject $today/nftables --subject bundled
row restart restart --subject $today/ipvs --subject $today/nftables --subject bundled
status=0
(compare_rows 600) || status=$?
if pictured "$first" && { [[ " ${rows[*]} " == *" rollout rollout "* ]] || ! pictured "$picture"; }; then # else the row was not kept
  bin/hitless report "$first" --format lanes > docs/results/rollout.lanes.txt
  bin/hitless results keep "$first" "$picture"
  ${GO:-go} run ./hack/docs
fi
exit "$status"
