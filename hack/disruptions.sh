#!/usr/bin/env bash
# Runs every disruption against the bundled proxier and kube-proxy's three modes with seed 1, for docs/results/disruptions.md: about an
# hour on two cores without KVM. Rows with a file in docs/results/disruptions are not run again, unless FORCE=1.
# SUBSET=restart,flush runs only these rows. A row that fails does not stop the others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
today=kube-proxy@v1.37.1 results=docs/results/disruptions
common=(--rate 50 --set baseline=10s --set settle=10s --controlplane replay --runs 1)

disruption() { # row, its subjects, then a scenario with settings
  local name=$1 subjects=() s
  for s in $2; do subjects+=(--subject "$s"); done
  row "$name" "${@:3}" "${subjects[@]}"
}

four="bundled $today/ipvs $today/nftables $today/iptables"
open=(--set "lanes=tcp-new,tcp-long") # open connections must survive too

disruption restart "$four" restart "${open[@]}"
disruption restart-kill "$four" restart --set signal=KILL --set which=all "${open[@]}"
disruption restart-freeze "$four" restart --set signal=STOP --set which=all --set downtime=10s "${open[@]}"
disruption restart-change "$four" restart --set change=on --set shutdownDelay=15s
disruption upgrade "$four" upgrade --set to=itself "${open[@]}"
disruption drain "$four" drain --set off=30s
disruption drain-local "$four" drain --set trafficPolicy=Local --set off=30s
disruption drain-scaledown "$four" drain --set what=scaledown --set off=25s
disruption drain-poweroff "$four" drain --set what=poweroff
disruption drain-reboot "$four" drain --set what=reboot --set off=40s
disruption flap "$four" flap --set watch=70s
disruption policy "$four" policy --set between=5s
disruption policy-nodeport "$four" policy --set between=5s --set target=nodePort
disruption recreate "$four" recreate --set away=5s
disruption api "$four" api --set away=40s --set relists=1 --set shutdownDelay=15s
disruption api-late "$four" api --set away=0s --set relists=0 --set delay=30s --set trafficPolicy=Cluster --set shutdownDelay=35s --set gracePeriod=45s
disruption scale "$four" scale --set away=10s
disruption flush "$four" interference --set lasts=40s --set trafficPolicy=Cluster
disruption reload "$four" interference --set what=reload --set lasts=40s --set trafficPolicy=Cluster
disruption stale-drop "$four" interference --set what=stale-drop
disruption stale-allow "$four" interference --set what=stale-allow
disruption second "bundled $today/ipvs $today/nftables" interference --set what=second --set to=$today/iptables --set trafficPolicy=Cluster
disruption migrate-nftables "$today/ipvs $today/iptables bundled" migrate --set to=$today/nftables
disruption migrate-ipvs "$today/nftables $today/iptables bundled" migrate --set to=$today/ipvs
compare_rows 180
