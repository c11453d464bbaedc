#!/usr/bin/env bash
# Runs the comparisons whose results belong in docs/results; `hitless results` prints them as a table. About 20 minutes on two
# cores without KVM. RUNS=N takes N seeds of each subject, four or more can show a difference.
set -euo pipefail
runs=${RUNS:-4}
today=kube-proxy@v1.37.1
compare() { # name, then the words of `hitless compare`
  name=$1; shift
  status=0
  bin/hitless compare "$@" --controlplane replay --runs "$runs" --out "out/results/$name" || status=$?
  [ "$status" -le 1 ] || { echo "comparing $name ended with exit code $status; nothing of it is kept" >&2; exit "$status"; }
  mkdir -p docs/results
  cp "out/results/$name/compare.json" "docs/results/$name.json"
}
compare rollout rollout --set rollouts=1 --subject kube-proxy@v1.25.3/iptables --subject kube-proxy@v1.26.0/iptables \
  --subject $today/ipvs --subject $today/nftables --subject bundled
# The README's picture: the first run of the first subject, whose history's hash stands in the comparison.
bin/hitless report "out/results/rollout/kube-proxy-v1.25.3-iptables-seed-1" --format lanes > docs/results/rollout.lanes.txt
compare restart restart --subject $today/ipvs --subject $today/nftables --subject bundled
go test ./cmd/hitless -count=1 -run TestTheReadmeHasTheCommitted -update
