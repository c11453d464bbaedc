#!/usr/bin/env bash
# Publishes the files of `make release` as the GitHub release of the tag TAG. It needs gh, with a token that may write contents.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-out/release}
[ -f "$out/hitless_${TAG}_linux_amd64.tar.gz" ] || { echo "$out has no release $TAG; \`VERSION=$TAG make release\` makes one" >&2; exit 2; }
files=$(cd "$out" && find . -maxdepth 1 -type f ! -name SHA256SUMS | sort)
summed=$(cd "$out" && sed 's/^[0-9a-f]*  /.\//' SHA256SUMS | sort)
[ "$files" = "$summed" ] || { echo "$out has other files than its SHA256SUMS lists; make the release again" >&2; exit 2; }
(cd "$out" && sha256sum --quiet -c SHA256SUMS)
kind=()
case $TAG in *-*) kind=(--prerelease) ;; esac
gh release create "$TAG" --verify-tag --title "$TAG" --generate-notes "${kind[@]}" "$out"/*
