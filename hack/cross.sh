#!/usr/bin/env bash
# Checks hitless for the other platforms of hack/platforms.txt. `cross.sh sample` is what CI runs: it type-checks everything, and compiles and
# tests what imports little. Without it all is compiled, vetted and tested where a packaged emulator can run it: docs/releases.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOFLAGS=-trimpath
export WINEDEBUG=-all WINEPREFIX=${WINEPREFIX:-$PWD/out/wine}
mkdir -p out
test=(go test -count=1 -vet=off -ldflags=-w)
step() { printf '== %s (%s s since the start)\n' "$1" "$SECONDS"; }
# own lists the packages that the program has on a platform. The others are Linux's.
own() { GOOS=${1%/*} GOARCH=${1#*/} go list -deps ./cmd/hitless | grep ^github.com/hitless/hitless/; }

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

step "the portable probe engine, on this machine"
"${test[@]}" -tags portable ./probes ./probes/session

if [ "${1:-}" = sample ]; then
  step "tests for linux/arm64"
  GOARCH=arm64 "${test[@]}" -exec qemu-aarch64 ./record ./analysis/... ./internal/version ./internal/cache
  step "tests for windows/amd64"
  GOOS=windows "${test[@]}" -exec wine ./record ./analysis/... ./internal/units ./internal/version
  exit
fi

for check in "${checks[@]}"; do
  platform=${check%%=*}
  step "build and vet for $platform"
  GOOS=${platform%/*} GOARCH=${platform#*/} go build -o /dev/null ./cmd/hitless
  case $platform in
  linux/*) packages=./... ;;
  *) packages=$(own "$platform") ;;
  esac
  # shellcheck disable=SC2086 # one argument for each package
  GOOS=${platform%/*} GOARCH=${platform#*/} go vet $packages
done
