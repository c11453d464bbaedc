#!/usr/bin/env bash
# Upgrades kube-proxy in place under traffic, and back, in each mode that both versions have, for docs/results/upgrades.md: about an
# hour on two idle cores, after the builds. Rows with a file in docs/results/upgrades are not run again, unless FORCE=1.
# SUBSET=v1.11-ipvs-open,v1.36-ipvs-roll runs only these rows. A row that fails does not stop the others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/upgrades logs=out/results/upgrades
# Old and new version, and the modes of both.
upgrades=("1.11.10 1.12.10 iptables ipvs" "1.25.3 1.26.0 iptables ipvs" "1.36.1 1.37.1 iptables ipvs nftables")
# Each row compares the upgrade with the same steps from the new version to itself: what the restarts alone cost.
common=(--set trafficPolicy=Cluster --set baseline=10s --set settle=10s --rate 50 --controlplane replay --runs 1)
brief=(--set shutdownDelay=5s --set gracePeriod=10s --set replicas=2 --set roll=on)
rows=() all=()

row() { # name, old and new subject, then arguments of `hitless compare upgrade`
  all+=("$1")
  wanted "$1" "$results/$1.json" || return 0
  local old=$2 new=$3 name=$1
  shift 3
  rows+=("$name upgrade --subject $old --subject $new --against $new --set to=$new $* ${common[*]}")
}

for upgrade in "${upgrades[@]}"; do
  read -r old new modes <<< "$upgrade"
  for mode in $modes; do
    name=v${old%.*}-$mode pair=("kube-proxy@v$old/$mode" "kube-proxy@v$new/$mode")
    row "$name-open" "${pair[@]}" --set back=on --set lanes=tcp-new,tcp-long # open connections must survive too
    row "$name-roll" "${pair[@]}" "${brief[@]}"                              # stale rules show when pods change
    row "$name-back" "${pair[@]}" --set back=on "${brief[@]}"
  done
done
check_subset row "${all[@]}"

mkdir -p "$results" "$logs"
failed=() begun=$(date +%s)
for i in "${!rows[@]}"; do
  read -r name command <<< "${rows[$i]}"
  status=0
  announce row "$i" "${#rows[@]}" "$name" "$begun" 90
  rm -rf "${logs:?}/$name" # else an earlier result may be taken for this one's
  # shellcheck disable=SC2086 # no argument has a space
  bin/hitless compare $command --out "$logs/$name" > "$logs/$name.log" 2>&1 || status=$?
  case $status in
    0 | 1 | 3) # a run that loses connections or is invalid is a result too
      if [ -e "$logs/$name/compare.json" ] && cp "$logs/$name/compare.json" "$results/$name.json.new" && mv "$results/$name.json.new" "$results/$name.json"; then
        echo "  exit code $status; $results/$name.json"
        continue
      fi ;;
    130 | 143) echo "interrupted; the rows before are kept" >&2; exit "$status" ;;
  esac
  failed+=("$name")
  echo "  ended with exit code $status and without a result; its last lines, of $logs/$name.log:" >&2
  tail -n 5 "$logs/$name.log" >&2
done
${GO:-go} run ./hack/docs
[ ${#failed[@]} -eq 0 ] || { echo "no result of ${failed[*]}; again: SUBSET=$(IFS=,; echo "${failed[*]}") make upgrades" >&2; exit 1; }
