#!/usr/bin/env bash
# Makes the files of a release in out/release: archives for all platforms, images, SBOMs and checksums. VERSION is by default the tag of the
# commit, or without one a version of its time and revision. The same commit and Go give the same bytes; docs/releases.md. OUT names another folder,
# which must be new, empty or of an earlier release.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
# shellcheck source=hack/folder.sh
. hack/folder.sh
revision=${REVISION:-$(git rev-parse --short=12 HEAD)}
version=${VERSION:-$(git describe --tags --exact-match 2>/dev/null || TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format="v0.0.0-%cd-$revision")}
usual=$(realpath -m out/release)
out=$(realpath -m "${OUT:-$usual}")
work=$out/work
empty_folder "$out" "$usual"
mkdir -p "$work/share/completions"
# The text has a fixed length, so that the version moves nothing in the program: internal/version.
stamp=$(printf '%-64s' "$version/$revision" | tr ' ' _)
[ ${#stamp} = 64 ] || { echo "the version $version is too long" >&2; exit 2; }
flags="-s -w -buildid= -X github.com/hitless/hitless/internal/version.stamp=hitless-version[$stamp]"
while read -r platform; do
  name=hitless
  [ "${platform%/*}" != windows ] || name=hitless.exe
  GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath -gcflags=all=-dwarf=false -buildvcs=false -ldflags "$flags" -o "$work/${platform/\//_}/$name" ./cmd/hitless
done <"${PLATFORMS:-hack/platforms.txt}"
# Guests of the other platforms' VMs execute the program for linux/amd64.
for dir in "$work"/linux_arm64 "$work"/darwin_*; do
  [ ! -d "$dir" ] || cp "$work/linux_amd64/hitless" "$dir/hitless-linux-amd64"
done
own=$work/$(go env GOHOSTOS)_$(go env GOHOSTARCH)/hitless
[ "$("$own" version | cut -d' ' -f2)" = "$version" ] || { echo "$own does not say that it is $version: $("$own" version)" >&2; exit 1; }
for shell in bash zsh fish powershell; do
  "$own" completion "$shell" >"$work/share/completions/hitless.$shell"
done
hack/gotest.sh -count=1 ./cmd/hitless -run 'TestManualPages$' -args -man="$work/share/man/man1" >/dev/null
# The pages that help and errors name, without the data of results.
cp --parents LICENSE README.md CONTRIBUTING.md docs/*.md docs/results/*.md docs/images/*.svg "$work/share/"
go run -C deploy/image . -release "$version" -in "$work" -out "$out"
rm -rf "$work"
