#!/usr/bin/env bash
# Builds one kube-proxy of each minor version since 1.11 and rolls a Deployment behind each of its modes, with policy Local and seed 1, for
# docs/results/kube-proxy-versions.md: an hour and a half on two cores, mostly compiling. Versions with a file in docs/results/minors are
# not run again, unless FORCE=1. MINORS="1.25.3 1.26.0" runs only these versions.
set -euo pipefail
results=docs/results/minors
minors=${MINORS:-1.11.10 1.12.10 1.13.12 1.14.10 1.15.12 1.16.15 1.17.17 1.18.20 1.19.16 1.20.15 1.21.14 1.22.17 1.23.17 1.24.17 1.25.3 1.26.0
  1.27.16 1.28.15 1.29.15 1.30.14 1.31.7 1.32.10 1.33.6 1.34.4 1.35.4 1.36.1 1.37.1}
mkdir -p "$results"
for version in $minors; do
  minor=$(cut -d. -f2 <<< "$version") file=$results/v${version%.*}.json status=0 subjects=()
  [[ -n ${FORCE:-} || ! -e $file ]] || continue
  modes=(iptables ipvs)
  [ "$minor" -lt 29 ] || modes+=(nftables)
  for mode in "${modes[@]}"; do subjects+=(--subject "kube-proxy@v$version/$mode"); done
  bin/hitless build "kube-proxy@v$version"
  bin/hitless compare rollout "${subjects[@]}" --rate 50 --set rollouts=1 --controlplane replay --runs 1 --out "out/results/minors/$version" || status=$?
  case $status in
    0 | 1 | 3) cp "out/results/minors/$version/compare.json" "$file" ;; # a run that is invalid is a result too
    *) echo "v$version ended with exit code $status; nothing of it is kept" >&2; exit "$status" ;;
  esac
done
${GO:-go} run ./hack/docs
