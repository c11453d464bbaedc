#!/usr/bin/env bash
# Publishes the files of `make release` as the GitHub release of the tag TAG. It needs gh, with a token that may write contents.
# The exit code is 2 if TAG is unset, or if the files are not those of its release.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${TAG:-}" ] || { echo "publish.sh: set TAG, the tag of the release, as in TAG=v1.2.3" >&2; exit 2; }
# shellcheck source=hack/folder.sh
. hack/folder.sh # its marker is no file of the release
out=${OUT:-out/release}
[ -f "$out/hitless_${TAG}_linux_amd64.tar.gz" ] || { echo "$out has no release $TAG; \`VERSION=$TAG make release\` makes one" >&2; exit 2; }
files=$(cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS ! -name "$marker" | sort)
summed=$(cd "$out" && sed 's/^[0-9a-f]*  /.\//' SHA256SUMS | sort)
[ "$files" = "$summed" ] || { echo "$out has other files than its SHA256SUMS lists; make the release again" >&2; exit 2; }
(cd "$out" && sha256sum --quiet -c SHA256SUMS)
kind=()
case $TAG in *-*) kind=(--prerelease) ;; esac
gh release create "$TAG" --verify-tag --title "$TAG" --generate-notes "${kind[@]}" "$out"/*
