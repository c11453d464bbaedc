#!/usr/bin/env bash
# Runs everything that is too slow for CI, job by job. A job that fails does not stop the others; the exit code is 1 then. Each job has a log in
# out/nightly. Jobs that passed with the same program and sources are not run again, unless FORCE=1.
#   SHARD    I/N: only each N-th job, from the I-th on; the jobs of all shards are all jobs
#   SUBSET   names of jobs, separated by commas
#   PLAN=1   lists the jobs of the shard, and ends
#   MERGE    trees in which shards ran, separated by commas: joins their jobs and results, and runs nothing
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=hack/rows.sh
. hack/rows.sh
export CGO_ENABLED=0 # as make
test=(hack/gotest.sh -count=1)
# The longest jobs first, so that shards end at about the same time.
jobs=(suite-museum release-check suite-subjects suite-conformance cross netns)
for suite in suites/*/*_test.go; do
  job=suite-$(basename "$(dirname "$suite")")
  [[ " ${jobs[*]} " == *" $job "* ]] || jobs+=("$job")
done
jobs+=(live conformance upstream explore)
check_subset job "${jobs[@]}"

# job runs one job by its name.
job() {
  case $1 in
    suite-*) "${test[@]}" -timeout 190m -tags lab "./suites/${1#suite-}" -ginkgo.timeout 3h -results "$PWD/docs/results/suites" ;;
    live) "${test[@]}" -timeout 150m -tags lab,nightly -run Nightly ./internal/run ;; # one test watches a lab for an hour
    conformance) "${test[@]}" -timeout 60m -tags lab,nightly -run Nightly ./suites/conformance ;;
    upstream) FOCUS='\[sig-network\] Services.*\[Conformance\]' OUT=out/nightly/upstream-e2e hack/upstream-e2e.sh ;;
    cross) hack/packages.sh cross && hack/cross.sh ;; # without make, whose exit code hides an interrupt
    explore) hack/unit.sh explore ;;
    netns | release-check) "hack/$1.sh" ;;
    *) echo "nightly.sh: no job is called $1"; return 2 ;;
  esac
}

if [ -n "${MERGE:-}" ]; then
  ${GO:-go} run ./hack/nightly -merge "$MERGE" "${jobs[@]}"
  exec ${GO:-go} run ./hack/docs
fi

part=${SHARD:-1/1}
if ! [[ $part =~ ^([1-9][0-9]?)/([1-9][0-9]?)$ ]] || ((BASH_REMATCH[1] > BASH_REMATCH[2])); then
  echo "SHARD=$part: give I/N with I from 1 to N, such as 1/4" >&2
  exit 2
fi
first=${BASH_REMATCH[1]} step=${BASH_REMATCH[2]}
# Tests and scripts are inputs too, and not part of the program.
sources() { git ls-files -z --cached --others --exclude-standard -- '*.go' '*.mod' '*.sum' '*/testdata/*' hack deploy docs/examples suites Makefile; }
program=$({ cat bin/hitless; sources | { xargs -0 sha256sum 2>/dev/null || true; }; } | sha256sum | cut -c1-12)
# A job whose record is lost, as after a checkout of the results, is run again.
grep -qs "\"sources\": \"$program\"" docs/results/nightly/jobs.json || rm -f out/nightly/*."$program"
todo=()
for i in "${!jobs[@]}"; do
  ((i % step == first - 1)) || continue
  if wanted "${jobs[$i]}" "out/nightly/${jobs[$i]}.$program"; then todo+=("${jobs[$i]}"); fi
done
if [ -n "${PLAN:-}" ]; then printf '%s\n' "${todo[@]}"; exit; fi

mkdir -p out/nightly docs/results/suites
failed=() begun=$(date +%s)
for i in "${!todo[@]}"; do
  name=${todo[$i]} started=$(date +%s) status=0
  announce job "$i" "${#todo[@]}" "$name" "$begun" 900
  export HITLESS_TIMES=$PWD/out/nightly/times/$name
  rm -rf "$HITLESS_TIMES"
  job "$name" > "out/nightly/$name.log" 2>&1 || status=$?
  if [ "$status" -eq 0 ] && compgen -G "$HITLESS_TIMES/tests-*.json" >/dev/null; then
    hack/skips.sh >> "out/nightly/$name.log" 2>&1 || status=$? # in CI a test that skipped fails its job
  fi
  seconds=$(($(date +%s) - started))
  echo "  exit code $status after $seconds s"
  case $status in
    130 | 143) echo "interrupted; the jobs before are kept" >&2; exit "$status" ;;
  esac
  if ! ${GO:-go} run ./hack/nightly -job "$name" -exit "$status" -seconds "$seconds" -sources "$program" -of "${#jobs[@]}"; then
    failed+=("$name, which is not kept")
  elif [ "$status" -ne 0 ]; then
    failed+=("$name")
    tail -n 20 "out/nightly/$name.log" >&2
  else
    touch "out/nightly/$name.$program"
  fi
done
${GO:-go} run ./hack/docs
[ ${#failed[@]} -eq 0 ] || { echo "failed: $(IFS=';'; echo "${failed[*]}"); their logs are in out/nightly" >&2; exit 1; }
