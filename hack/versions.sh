#!/usr/bin/env bash
# Compares two versions of kube-proxy in a MODE on the same seeds. The exit code is 1 when NEW is worse than OLD in a scenario, or
# loses connections, whether it drops or delays them. It is 2 when OLD, NEW or MODE is unset, and 3 when a run is invalid or the runs do not
# tell. An interrupt ends it with 130 or 143.
set -euo pipefail
missing=()
for name in OLD NEW MODE; do [ -n "${!name:-}" ] || missing+=("$name"); done
[ ${#missing[@]} -eq 0 ] || { echo "versions.sh: set ${missing[*]}, as in OLD=v1.36.1 NEW=v1.37.1 MODE=ipvs" >&2; exit 2; }
hitless="${HITLESS:-$(dirname "$0")/..}/bin/hitless"
out=${OUT:-out/versions}
worst=0
compare() { # name, then arguments of `hitless compare`
  local name=$1 status=0
  shift
  "$hitless" compare "$@" --subject "kube-proxy@$OLD/$MODE" --subject "kube-proxy@$NEW/$MODE" --controlplane replay \
    --runs "${RUNS:-4}" --out "$out/$name" || status=$?
  case $status in 130 | 143) echo "interrupted; the scenarios before are kept in $out" >&2; exit "$status" ;; esac
  if [ "$status" -ne 0 ]; then echo "$name: kube-proxy $NEW after $OLD in mode $MODE ended with exit code $status" >&2; fi
  if [ "$status" -gt "$worst" ]; then worst=$status; fi
}
compare rollout rollout --set rollouts=1
compare restart restart
compare kill restart --set signal=KILL
compare scaledown drain --set what=scaledown --set off=30s
exit "$worst"
