#!/usr/bin/env bash
# Runs each bug of the museum against a version that has it and one that does not, for docs/results/museum.md, and writes the pages: four hours on
# two cores without KVM, after the builds. Answers that tell something and are of the entry as it is now are not run again.
#   SUBSET     only these bugs, separated by commas
#   SEEDS      number of seeds (4)
#   SUBJECTS   runs the bugs against these subjects instead, for docs/results/museum-subjects.md; `kept` stands for those with an answer, and
#              `versions` searches the versions of kube-proxy with each bug
#   STALE=1    makes the answers of other programs than bin/hitless again; FORCE=1 makes all
#   JUDGE=1    judges the records in out/results/museum again instead of running
#   PICTURES=1 draws the runs of seed 1 too, for the program
# Exit codes: 0 all answers are the expected ones, 1 one is not, 2 wrong usage or environment, 3 a run cannot tell, 130 interrupted.
set -euo pipefail
status=0
${GO:-go} build -o out/museum/museum ./hack/museum # `go run` would end with exit code 1 whatever happens
out/museum/museum -subset "${SUBSET:-}" -seeds "${SEEDS:-4}" -subjects "${SUBJECTS:-}" \
  ${STALE:+-stale} ${FORCE:+-force} ${JUDGE:+-judge} ${PICTURES:+-pictures} || status=$?
${GO:-go} run ./hack/docs || [ "$status" -ne 0 ] || status=2
exit "$status"
