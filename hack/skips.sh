#!/usr/bin/env bash
# Lists the tests that no call of hack/gotest.sh ran because they skipped, with their reasons, from the folder HITLESS_TIMES (out/times). In CI,
# where CI is set, the exit code is 1 if one skipped for a reason that is not expected there. Specs of suites are checked by package suites.
set -euo pipefail
cd "$(dirname "$0")/.."
times=${HITLESS_TIMES:-out/times}
expected='runs only ' # begins the reason of a test that runs elsewhere or by hand
busy='the machine is too busy' # begins that of a test that could not measure
most=5 # tests that could not measure: more are no accident, and prove nothing

# Lines of KIND, test and reason. The reason stands in the last line of output with the place of the skip.
skipped=$(cat "$times"/tests-*.json | awk -v expected="$expected" -v busy="$busy" '
  function field(name) { return match($0, "\"" name "\":\"([^\"\\\\]|\\\\.)*\"") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5) : "" }
  /"Action":"(pass|fail|skip|output)"/ && /"Test":"/ {
    test = field("Package") " " field("Test"); action = field("Action")
    if (action == "output") {
      if (/[a-z_]+\.go:[0-9]+: /) { line = field("Output"); sub(/^ *[a-zA-Z0-9_]+\.go:[0-9]+: /, "", line); said[test] = line }
      next
    }
    if (action == "skip") { reason[test] = said[test] == "" ? "it tells no reason" : said[test] } else ran[test] = 1
    said[test] = ""
  }
  END {
    for (test in reason) if (!(test in ran)) {
      kind = index(reason[test], expected) == 1 ? "expected" : index(reason[test], busy) == 1 ? "busy" : "unexpected"
      print kind "\t" test "\t" reason[test]
    }
  }' | sed 's/\\n$//' | sort)
printf '\n== skipped tests\n'
[ -n "$skipped" ] || { echo none; exit 0; }
echo "$skipped"
count() { grep -c "^$1	" <<<"$skipped" || true; }
unexpected=$(count unexpected) late=$(count busy)
[ "$unexpected" -eq 0 ] && [ "$late" -le "$most" ] && exit 0
echo "$unexpected tests skipped for a reason that does not begin with \"$expected\"; $late could not measure, and $most may" >&2
[ -z "${CI:-}" ] || exit 1
