#!/usr/bin/env bash
# Builds one kube-proxy of each minor version since 1.11 and rolls a Deployment behind each of its modes, with policy Local and seed 1, for
# docs/results/kube-proxy-versions.md: an hour and a half on two cores, mostly compiling. Rows with a file in docs/results/minors are
# not run again, unless FORCE=1. SUBSET=v1.25,v1.26 runs only these. A row that fails does not stop the others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/minors
common=(--rate 50 --set rollouts=1 --controlplane replay --runs 1)
valid=1

for version in 1.11.10 1.12.10 1.13.12 1.14.10 1.15.12 1.16.15 1.17.17 1.18.20 1.19.16 1.20.15 1.21.14 1.22.17 1.23.17 1.24.17 1.25.3 1.26.0 \
  1.27.16 1.28.15 1.29.15 1.30.14 1.31.7 1.32.10 1.33.6 1.34.4 1.35.4 1.36.1 1.37.1; do
  modes=(iptables ipvs) subjects=()
  [ "$(cut -d. -f2 <<< "$version")" -lt 29 ] || modes+=(nftables)
  for mode in "${modes[@]}"; do subjects+=(--subject "kube-proxy@v$version/$mode"); done
  row "v${version%.*}" rollout "${subjects[@]}"
done
compare_rows 200
