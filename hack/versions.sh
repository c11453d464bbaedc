#!/usr/bin/env bash
# Compares two versions of kube-proxy in a MODE on the same seeds. The exit code is 1 when NEW is worse than OLD in a scenario, or
# loses connections, whether it drops or delays them. It is 3 when a run is invalid or the runs do not tell.
set -euo pipefail
hitless="${HITLESS:-$(dirname "$0")/..}/bin/hitless"
out=${OUT:-out/versions}
worst=0
compare() { # name, then arguments of `hitless compare`
  local name=$1 status=0
  shift
  "$hitless" compare "$@" --subject "kube-proxy@$OLD/$MODE" --subject "kube-proxy@$NEW/$MODE" --controlplane replay \
    --runs "${RUNS:-4}" --out "$out/$name" || status=$?
  if [ "$status" -ne 0 ]; then echo "$name: kube-proxy $NEW after $OLD in mode $MODE ended with exit code $status" >&2; fi
  if [ "$status" -gt "$worst" ]; then worst=$status; fi
}
compare rollout rollout --set rollouts=1
compare restart restart
compare kill restart --set signal=KILL
compare scaledown drain --set what=scaledown --set off=30s
exit "$worst"
