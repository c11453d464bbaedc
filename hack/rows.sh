# shellcheck shell=bash
# Functions for scripts that make a result file for each of their rows. Such scripts source this file.

# Without it bash continues after a program that was interrupted and ended with an exit code.
trap 'echo "interrupted; what was made before is kept" >&2; exit 130' INT

# wanted succeeds if a row is to be run: name, file of its result. A result that exists is made again with FORCE, and with STALE if another
# program than bin/hitless made it or it does not tell what made it.
wanted() {
  [[ -z ${SUBSET:-} || ",$SUBSET," == *",$1,"* ]] || return 1
  [[ -n ${FORCE:-} || ! -e $2 ]] || stale "$2"
}

# stale succeeds if STALE asks for the results of this program, and the file has others.
stale() {
  [[ -n ${STALE:-} ]] && ! bin/hitless results check "$1" > /dev/null 2>&1
}

# list ends the script if LIST is set, and prints the names of all rows: names.
list() {
  [ -z "${LIST:-}" ] || { printf '%s\n' "$@"; exit; }
}

# check_subset ends the script if SUBSET has a name that no row has: what a row is called, names of all rows.
check_subset() {
  local noun=$1 name requested=${SUBSET:-}
  shift
  for name in ${requested//,/ }; do
    [[ " $* " == *" $name "* ]] || { echo "no $noun is called $name; the ${noun}s are $*" >&2; exit 2; }
  done
}

# choose puts the rows that are to be run into todo: what a row is called, what ends its name, how the names of result files end, and all rows.
# The script sets results, the directory of the result files.
choose() {
  local noun=$1 end=$2 suffix=$3 line name
  shift 3
  all=() todo=()
  for line; do
    name=${line%%"$end"*}
    all+=("$name")
    # shellcheck disable=SC2154 # the script sets results
    if wanted "$name" "$results/$name.$suffix"; then todo+=("$line"); fi
  done
  list "${all[@]}"
  check_subset "$noun" "${all[@]}"
}

# announce tells which row begins, and when all end: what a row is called, index from 0, number of rows, name, when the first row began, and the
# seconds of a row until one has been measured.
announce() {
  local now each=$6
  now=$(date +%s)
  [ "$2" -eq 0 ] || each=$(((now - $5) / $2))
  echo "$1 $(($2 + 1)) of $3: $4; all ${1}s end at about $(date -d "@$((now + each * ($3 - $2)))" +%H:%M)"
}

# row adds a row to those that compare_rows runs: name, then arguments of `hitless compare`. The script sets results, the directory of the
# result files, and common, the arguments of all rows.
rows=() all=()
row() {
  all+=("$1")
  wanted "$1" "$results/$1.json" || return 0
  rows+=("$*")
}

# usable succeeds if the result of a comparison may be kept: file.
usable() {
  [ -e "$1" ] || return 1
  [ -z "${valid:-}" ] || ${GO:-go} run ./hack/judge valid "$1" >&2
}

# compare_rows runs the rows that were added, and writes the pages: seconds of a row. A row that fails does not stop the others; the script
# ends with exit code 1 then. The script sets valid=1 if a row with an invalid run is no result; other rows keep theirs.
compare_rows() {
  local logs=${results#docs/} failed=() begun i name command status
  logs=out/${logs#out/}
  list "${all[@]}"
  check_subset row "${all[@]}"
  mkdir -p "$results" "$logs"
  begun=$(date +%s)
  for i in "${!rows[@]}"; do
    read -r name command <<< "${rows[$i]}"
    announce row "$i" "${#rows[@]}" "$name" "$begun" "$1"
    rm -rf "${logs:?}/$name" # else an earlier result may be taken for this one's
    status=0
    # shellcheck disable=SC2086,SC2154 # no argument has a space; the script sets common
    bin/hitless compare $command "${common[@]}" --out "$logs/$name" > "$logs/$name.log" 2>&1 || status=$?
    case $status in
      0 | 1 | 3) # a run that loses connections is a result too
        if usable "$logs/$name/compare.json" && bin/hitless results keep "$logs/$name" "$results/$name.json" >> "$logs/$name.log" 2>&1; then
          echo "  exit code $status; $results/$name.json"
          continue
        fi ;;
    esac
    case $status in
      130 | 143) echo "interrupted; the rows before are kept" >&2; exit "$status" ;;
    esac
    failed+=("$name")
    echo "  ended with exit code $status and without a result; its last lines, of $logs/$name.log:" >&2
    tail -n 5 "$logs/$name.log" >&2
  done
  ${GO:-go} run ./hack/docs || exit 1 # also where a caller has switched errexit off
  [ ${#failed[@]} -eq 0 ] || { echo "no result of ${failed[*]}; again with SUBSET=$(IFS=,; echo "${failed[*]}")" >&2; exit 1; }
}
