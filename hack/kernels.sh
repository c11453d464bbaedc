#!/usr/bin/env bash
# Runs rollout, restart, flap and a rollout with reused ports on the kernels of four releases of Debian, for docs/results/kernels.md: half an
# hour on two cores without KVM. Rows with a file in docs/results/kernels are not run again, unless FORCE=1. SUBSET=restart,flap-nftables runs
# only these rows. kube-proxy in nftables mode refuses Linux 5.10, so its rows are without debian-11.
# A row that fails does not stop the others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/kernels
common=(--rate 50 --set baseline=10s --set settle=10s --controlplane replay --runs 1)
late="--guest-kernel debian-12 --guest-kernel debian-13 --guest-kernel debian-sid --against debian-12"
ipvs="--subject bundled --subject kube-proxy@v1.37.1/ipvs --guest-kernel debian-11 $late"
nftables="--subject kube-proxy@v1.37.1/nftables $late"

# shellcheck disable=SC2086 # no argument has a space
kernels() { # row, scenario and settings
  row "$1" "${@:2}" $ipvs
  row "$1-nftables" "${@:2}" $nftables
}
kernels rollout rollout
kernels restart restart --set lanes=tcp-new,tcp-long
kernels flap flap --set watch=70s
kernels reuse rollout --set rollouts=1 --set reuse=5s # a client uses each port again, as in kubernetes#81775
compare_rows 400
