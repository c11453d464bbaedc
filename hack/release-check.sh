#!/usr/bin/env bash
# Checks releases of the commit: two folders give the same bytes, two versions the same program for guests, and `go install` a working one.
# Exit code 2: the tree has other sources than the commit.
set -euo pipefail
cd "$(dirname "$0")/.."
# The data of results are no part of a release, and the jobs of a night write them.
changed=$(git status --porcelain -- . ':!docs/results/*/*')
[ -z "$changed" ] || { printf 'these files are not those of the commit; commit or stash them:\n%s\n' "$changed" >&2; exit 2; }
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
say() { printf '== %s (%s s since the start)\n' "$1" "$SECONDS"; }
export REVISION
REVISION=$(git rev-parse --short=12 HEAD)

say "two releases in two folders"
git archive HEAD --prefix=another/folder/ | tar x -C "$dir"
VERSION=v1.2.3 OUT=$dir/first hack/release.sh >/dev/null
(cd "$dir/another/folder" && TZ=Asia/Tokyo VERSION=v1.2.3 hack/release.sh >/dev/null)
diff -r "$dir/first" "$dir/another/folder/out/release"
(cd "$dir/first" && sha256sum --quiet -c SHA256SUMS)

say "another version, the same program for guests"
echo linux/amd64 >"$dir/platforms"
VERSION=v22.10.33-rc.1 PLATFORMS=$dir/platforms OUT=$dir/other hack/release.sh >/dev/null
sums=()
for archive in "$dir/first/hitless_v1.2.3_linux_amd64.tar.gz" "$dir"/other/*.tar.gz; do
  mkdir "$dir/program"
  tar xz -C "$dir/program" --strip-components=1 -f "$archive"
  said=$("$dir/program/hitless" version)
  echo "$said"
  sums+=("${said##* }")
  rm -r "$dir/program"
done
[ "${sums[0]}" = "${sums[1]}" ] || { echo "the version changes the program of guests" >&2; exit 1; }

say "go install from a module proxy"
rm -r "$dir/another/folder/out" # the rest is what was committed
version=v0.1.0-check.r$REVISION # Go keeps a version that it has seen
modules=$(go env GOMODCACHE)
trap 'chmod -R u+w "$dir" "$modules"/github.com/hitless 2>/dev/null || true; rm -rf "$dir" "$modules/github.com/hitless/hitless@$version" "$modules/cache/download/github.com/hitless/hitless/@v/$version".*' EXIT
go run ./hack/modproxy "$dir/another/folder" "$version" "$dir/proxy"
mkdir "$dir/home"
(
  cd "$dir/home" # far from the repository
  GOPROXY=file://$dir/proxy,$(go env GOPROXY) GONOSUMDB="github.com/hitless/*" GOFLAGS=-trimpath CGO_ENABLED=0 GOBIN=$dir/bin \
    go install github.com/hitless/hitless/cmd/hitless@"$version"
  "$dir/bin/hitless" version | grep "^hitless $version go"
  "$dir/bin/hitless" museum >museum.txt
  grep -m 3 k8s- museum.txt
  "$dir/bin/hitless" schema report >/dev/null
  "$dir/bin/hitless" doctor --install
)
