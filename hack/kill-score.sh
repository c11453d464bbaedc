#!/usr/bin/env bash
# Runs the conformance suite against proxies with one defect each, for docs/results/kill-score.md: at most three hours on two cores
# without KVM. Runs in docs/results/kills/mutants.json with the same programs are not repeated. SUBSET=ignore-udp,flush runs only these mutants.
# With the argument -bugs it runs the suite against the specimens of the museum, for docs/results/museum.md; SUBSET has ids of bugs then.
# Exit codes: 0 every mutant was killed, 1 one survived, 2 wrong usage or environment, 3 the table is invalid or lacks a mutant, 130 interrupted.
set -euo pipefail
status=0
${GO:-go} build -o out/kill-score/killscore ./hack/killscore # `go run` would end with exit code 1 whatever happens
out/kill-score/killscore -subset "${SUBSET:-}" "$@" || status=$?
${GO:-go} run ./hack/docs || [ "$status" -ne 0 ] || status=2
exit "$status"
