#!/usr/bin/env bash
# Runs the conformance suite against nine subjects, for docs/results/conformance.md. Subjects with a file in docs/results/conformance are not run
# again, unless FORCE=1. That takes two and a half hours on two idle cores without KVM.
#   SUBSET   only these subjects, separated by commas, as --subject has them
#   FILTER   label filter of the specs; without it the bundled proxier and today's kube-proxy run all, and the others those that are not nightly
# Exit code: 0 all subjects have a result, 1 one has none.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/conformance
today=kube-proxy@v1.37.1
subjects=(bundled "$today/iptables" "$today/ipvs" "$today/nftables" kube-proxy@v1.25.3/iptables kube-proxy@v1.25.3/ipvs kube-proxy@v1.12.5/ipvs cilium@1.15.19 cilium@1.20.2)
whole=" bundled $today/iptables $today/ipvs $today/nftables "
list "${subjects[@]}"
check_subset subject "${subjects[@]}"
missing=() failed=()
for subject in "${subjects[@]}"; do
  if wanted "$subject" "$results/${subject//[@\/]/-}/conformance.yaml"; then missing+=("$subject"); fi
done
begun=$(date +%s)
for i in "${!missing[@]}"; do
  name=${missing[$i]//[@\/]/-}
  announce subject "$i" "${#missing[@]}" "${missing[$i]}" "$begun" 1000
  out=out/results/conformance/$name
  filter=()
  if [[ -n ${FILTER:-} || $whole != *" ${missing[$i]} "* ]]; then filter=(--label-filter "${FILTER:-!nightly}"); fi
  mkdir -p "$out"
  rm -f "$out/conformance.yaml"
  status=0
  bin/hitless conformance --subject "${missing[$i]}" "${filter[@]}" --out "$out" >"$out.log" 2>&1 || status=$?
  case $status in
    0 | 1 | 3) ;; # a failed spec is a result too
    130 | 143) echo "interrupted; the subjects before are kept" >&2; exit "$status" ;;
  esac
  # A suite that ended early, or after an error of the machine, has judged not all specs: its report is none of the subject.
  if [ ! -e "$out/conformance.yaml" ] || ! ${GO:-go} run ./hack/judge whole "$out" >>"$out.log" 2>&1 ||
    ! bin/hitless results keep "$out" "$results/$name/conformance.yaml" >>"$out.log" 2>&1; then
    failed+=("${missing[$i]}")
    tail -n 5 "$out.log" >&2
  fi
done
${GO:-go} run ./hack/docs
[ ${#failed[@]} -eq 0 ] || { echo "no result of ${failed[*]}; again with SUBSET=$(IFS=,; echo "${failed[*]}")" >&2; exit 1; }
