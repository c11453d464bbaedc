#!/usr/bin/env bash
# Runs the conformance suite against proxies with one defect each, for docs/results/kill-score.md: at most three hours on two cores
# without KVM. Runs in docs/results/kill-score.json with the same programs are not repeated. SUBSET=ignore-udp,flush runs only these mutants.
set -euo pipefail
status=0
${GO:-go} run ./hack/killscore -subset "${SUBSET:-}" || status=$?
${GO:-go} run ./hack/docs
exit "$status"
