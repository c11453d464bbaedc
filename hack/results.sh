#!/usr/bin/env bash
# Runs the comparisons of docs/results/comparisons.md and the picture of README.md: about 20 minutes on two cores without KVM. RUNS=N runs
# N seeds of each subject.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
runs=${RUNS:-4}
today=kube-proxy@v1.37.1
compare() { # name, then arguments of `hitless compare`
  name=$1; shift
  [ -z "${STALE:-}" ] || stale "docs/results/$name.json" || return 0
  status=0
  bin/hitless compare "$@" --controlplane replay --runs "$runs" --out "out/results/$name" || status=$?
  [ "$status" -le 1 ] || { echo "comparing $name ended with exit code $status; nothing of it is kept" >&2; exit "$status"; }
  mkdir -p docs/results
  bin/hitless results keep "out/results/$name" "docs/results/$name.json"
}
compare rollout rollout --set rollouts=1 --subject kube-proxy@v1.25.3/iptables --subject kube-proxy@v1.26.0/iptables \
  --subject $today/ipvs --subject $today/nftables --subject bundled
# The pictures of README.md and docs/reports.md are both of the first run of the first subject.
first=out/results/rollout/kube-proxy-v1.25.3-iptables-seed-1
if [ -z "${STALE:-}" ] || stale docs/results/picture/report.json; then
  bin/hitless report "$first" --format lanes > docs/results/rollout.lanes.txt
  bin/hitless results keep "$first" docs/results/picture/report.json
fi
compare restart restart --subject $today/ipvs --subject $today/nftables --subject bundled
${GO:-go} run ./hack/docs
