# shellcheck shell=bash
# Functions for scripts that make a result file for each of their rows. Such scripts source this file.

# wanted succeeds if a row is to be run: name, file of its result.
wanted() {
  [[ -z ${SUBSET:-} || ",$SUBSET," == *",$1,"* ]] && [[ -n ${FORCE:-} || ! -e $2 ]]
}

# check_subset ends the script if SUBSET names no row: what a row is called, names of all rows.
check_subset() {
  local noun=$1 name requested=${SUBSET:-}
  shift
  for name in ${requested//,/ }; do
    [[ " $* " == *" $name "* ]] || { echo "SUBSET names $name; the ${noun}s are $*" >&2; exit 2; }
  done
}

# announce tells which row begins, and when all end: what a row is called, index from 0, number of rows, name, when the first row began, and the
# seconds of a row until one has been measured.
announce() {
  local now each=$6
  now=$(date +%s)
  [ "$2" -eq 0 ] || each=$(((now - $5) / $2))
  echo "$1 $(($2 + 1)) of $3: $4; all ${1}s end at about $(date -d "@$((now + each * ($3 - $2)))" +%H:%M)"
}
