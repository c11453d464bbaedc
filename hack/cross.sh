#!/usr/bin/env bash
# Checks hitless for the other platforms of hack/platforms.txt. CI runs two parts: `cross.sh sample` type-checks everything, and runs quick tests for
# arm64 under QEMU; `cross.sh portable` tests the portable probe engine on this machine with the real clock. Without a part the program is also built for
# each platform, which takes 200 s of CPU time where nothing is compiled yet, all is vetted, slower tests run, and a lab. Wine 8 of Debian 12 cannot
# run programs of this Go: it has no bcryptprimitives.dll.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false' # as `make build` and releases
test=(go test -count=1 -vet=off -ldflags=-w)
step() { printf '== %s (%s s since the start)\n' "$1" "$SECONDS"; }
# own lists the packages that the program has on a platform. The others are Linux's.
own() { GOOS=${1%/*} GOARCH=${1#*/} go list -deps ./cmd/hitless | grep ^github.com/hitless/hitless/; }

portable() {
  step "the portable probe engine, on this machine"
  hack/gotest.sh -count=1 -tags portable ./probes ./probes/session
}
case ${1:-} in
portable) portable; exit ;;
sample | "") ;;
*) echo "cross.sh $1: the parts are sample and portable" >&2; exit 2 ;;
esac

checks=()
while read -r platform; do
  case $platform in
  linux/amd64) ;;
  linux/*) checks+=("$platform") ;;
  *) checks+=("$platform=$(own "$platform" | paste -sd,)") ;;
  esac
done <hack/platforms.txt
step "types on all platforms"
go run ./hack/crosscheck "${checks[@]}"

[ "${1:-}" = sample ] || portable

# emulated runs tests for linux/arm64.
emulated() { GOARCH=arm64 "${test[@]}" -exec qemu-aarch64 "$@"; }

step "tests for linux/arm64"
quick=(./analysis/verify ./cluster ./internal/cache ./internal/clock ./internal/flags ./internal/input ./internal/progress ./internal/recording ./internal/units
  ./internal/version ./record ./reports/chart ./reports/page ./reports/serve ./scenarios ./scenarios/timeline ./scenarios/values)
if [ "${1:-}" = sample ]; then
  emulated "${quick[@]}" -skip 'EveryChangedByteOfASealedRecord|KillDuring'
  exit
fi
for check in "${checks[@]}"; do
  platform=${check%%=*}
  step "build for $platform"
  GOOS=${platform%/*} GOARCH=${platform#*/} go build -buildvcs=false -ldflags '-s -w' -o /dev/null ./cmd/hitless
done

step "slower tests for linux/arm64"
emulated "${quick[@]}" ./analysis/... ./reports/... ./scenarios/... -skip KillDuring # QEMU cannot start the test's own program again
emulated ./cmd/hitless -run 'OtherPlatform|Docs|Manual'

step "a lab by the program for linux/arm64 has the history of linux/amd64"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
make -s build
cp bin/hitless "$dir/hitless-linux-amd64" # of guests: docs/requirements.md, "Other processors"
GOARCH=arm64 go build -buildvcs=false -ldflags '-s -w' -o "$dir/hitless" ./cmd/hitless
run=(run rollout --controlplane replay --set rollouts=1)
qemu-aarch64 "$dir/hitless" "${run[@]}" --out "$dir/arm64"
"$dir/hitless-linux-amd64" "${run[@]}" --out "$dir/amd64"
diff -r "$dir/arm64/history" "$dir/amd64/history"

for check in "${checks[@]}"; do
  platform=${check%%=*}
  step "vet for $platform"
  case $platform in
  linux/*) packages=./... ;;
  *) packages=$(own "$platform") ;;
  esac
  # shellcheck disable=SC2086 # one argument for each package
  GOOS=${platform%/*} GOARCH=${platform#*/} go vet $packages
done
