#!/usr/bin/env bash
# Compares the bundled proxier, kube-proxy in three modes and two versions of Cilium over five scenarios on four seeds, for
# docs/results/dataplanes.md: two hours on two cores without KVM. Rows with a file in docs/results/dataplanes are not run again, unless FORCE=1.
# SUBSET=flap,policy runs only these rows. A row that fails does not stop the others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/dataplanes
common=(--rate 50 --set baseline=10s --set settle=10s --controlplane replay --runs 4)

# shellcheck disable=SC2086 # no argument has a space
dataplanes() { # row, scenario and settings
  local today=kube-proxy@v1.37.1
  row "$@" --subject bundled --subject $today/iptables --subject $today/ipvs --subject $today/nftables --subject cilium@1.15.19 --subject cilium@1.20.2
}
dataplanes policy policy --set between=5s
dataplanes flap flap --set watch=70s
dataplanes restart restart --set lanes=tcp-new,tcp-long
dataplanes rollout rollout --set rollouts=1
dataplanes drain-scaledown drain --set what=scaledown --set off=25s
compare_rows 1400
