#!/usr/bin/env bash
# Unit tests. Property tests use a fixed seed here, so that the same tree gives the same result on every machine. `explore` runs only them,
# longer and with random seeds; a failure prints the seed that repeats it. It also runs each fuzz test for FUZZTIME (a minute).
set -euo pipefail
# Compilers leave the CPUs to tests, some of which measure with the real clock.
test=(hack/gotest.sh -p "$(($(nproc) + 1))" -toolexec "nice -n 19") # tests wait for half of their time
packages=$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./...)
random=$(awk '/pgregory.net\/rapid/ {print $1}' <<<"$packages")
others=$(awk '!/pgregory.net\/rapid/ {print $1}' <<<"$packages")
if [ "${1:-}" = explore ]; then
  fuzz=$(git grep -oE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' | sed 's/func //') || { echo "git grep finds no fuzz test" >&2; exit 1; }
  # shellcheck disable=SC2086 # one argument for each package
  "${test[@]}" -count=1 -timeout 60m $random -rapid.checks="${CHECKS:-5000}"
  while IFS=: read -r file name; do
    "${test[@]}" -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-1m}" "./$(dirname "$file")"
  done <<<"$fuzz"
  exit
fi
# shellcheck disable=SC2086
"${test[@]}" $others
(cd deploy/image && ../../hack/gotest.sh .)
# shellcheck disable=SC2086
"${test[@]}" $random -rapid.seed="${SEED:-1}"
