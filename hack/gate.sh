#!/usr/bin/env bash
# What .github/actions/gate does: runs SCENARIO against SUBJECT, and judges the run by the file BUDGET, if one is given. The exit
# code is hitless's: 1 for a loss that is not accepted, 3 for a run that cannot be trusted.
set -euo pipefail
hitless="${HITLESS:-$(dirname "$0")/..}/bin/hitless"
words=(run "$SCENARIO" --subject "$SUBJECT" --seed "${SEED:-1}" --controlplane "${CONTROLPLANE:-replay}" --out "$OUT")
while IFS= read -r pair; do
  [ -z "$pair" ] || words+=(--set "$pair")
done <<<"${SET:-}"
status=0
"$hitless" "${words[@]}" || status=$?
if [ -n "${BUDGET:-}" ] && [ "$status" -le 1 ]; then
  status=0
  "$hitless" gate "$OUT" --budget "$BUDGET" || status=$?
fi
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$OUT/summary.md" ]; then cat "$OUT/summary.md" >> "$GITHUB_STEP_SUMMARY"; fi
exit "$status"
