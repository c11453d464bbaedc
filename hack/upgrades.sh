#!/usr/bin/env bash
# Upgrades kube-proxy in place under traffic, and back, in each mode that both versions have, for docs/results/upgrades.md: about an
# hour on two idle cores, after the builds. Rows with a file in docs/results/upgrades are not run again, unless FORCE=1.
# SUBSET=v1.11-ipvs-open,v1.36-ipvs-roll runs only these rows. A row that fails does not stop the others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/upgrades
# Old and new version, and the modes of both.
upgrades=("1.11.10 1.12.10 iptables ipvs" "1.25.3 1.26.0 iptables ipvs" "1.36.1 1.37.1 iptables ipvs nftables")
common=(--set trafficPolicy=Cluster --set baseline=10s --set settle=10s --rate 50 --controlplane replay --runs 1)
brief=(--set shutdownDelay=5s --set gracePeriod=10s --set replicas=2 --set roll=on)

# Each row compares the upgrade with the same steps from the new version to itself: what the restarts alone cost.
upgrade() { # name, old and new subject, then arguments of `hitless compare upgrade`
  row "$1" upgrade --subject "$2" --subject "$3" --against "$3" --set "to=$3" "${@:4}"
}

for versions in "${upgrades[@]}"; do
  read -r old new modes <<< "$versions"
  for mode in $modes; do
    name=v${old%.*}-$mode pair=("kube-proxy@v$old/$mode" "kube-proxy@v$new/$mode")
    upgrade "$name-open" "${pair[@]}" --set back=on --set lanes=tcp-new,tcp-long # open connections must survive too
    upgrade "$name-roll" "${pair[@]}" "${brief[@]}"                              # stale rules show when pods change
    upgrade "$name-back" "${pair[@]}" --set back=on "${brief[@]}"
  done
done
compare_rows 90
