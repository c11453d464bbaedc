#!/usr/bin/env bash
# Runs SCENARIO against SUBJECT for .github/actions/gate, and judges the run by the file BUDGET, if one is given. The exit code is that of
# hitless: 1 for a loss beyond the budget, 3 for an invalid run. It is 2 when SCENARIO, SUBJECT or OUT is unset.
set -euo pipefail
missing=()
for name in SCENARIO SUBJECT OUT; do [ -n "${!name:-}" ] || missing+=("$name"); done
[ ${#missing[@]} -eq 0 ] || { echo "gate.sh: set ${missing[*]}, as in SCENARIO=rollout SUBJECT=bundled OUT=out/gate" >&2; exit 2; }
hitless="${HITLESS:-$(dirname "$0")/..}/bin/hitless"
words=(run "$SCENARIO" --subject "$SUBJECT" --seed "${SEED:-1}" --controlplane "${CONTROLPLANE:-replay}" --out "$OUT")
while IFS= read -r pair; do
  [ -z "$pair" ] || words+=(--set "$pair")
done <<<"${SET:-}"
status=0 judged=
"$hitless" "${words[@]}" || status=$?
if [ -n "${BUDGET:-}" ] && [ "$status" -le 1 ]; then
  status=0
  judged=$("$hitless" gate "$OUT" --budget "$BUDGET") || status=$?
  printf '%s\n' "$judged"
fi
# The budget decides, so its verdict stands before that of the run.
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
  {
    # shellcheck disable=SC2016 # the backquotes are Markdown
    [ -z "$judged" ] || printf '## By the budget %s\n\n```\n%s\n```\n\n' "$BUDGET" "$judged"
    [ ! -f "$OUT/summary.md" ] || cat "$OUT/summary.md"
  } >> "$GITHUB_STEP_SUMMARY"
fi
exit "$status"
