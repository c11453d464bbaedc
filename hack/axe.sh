#!/bin/sh
# Fetches axe.min.js of the npm package axe-core into out/axe, for the tests of `make browser`. Without npm they skip axe, and say so.
set -eu
cd "$(dirname "$0")/.."
test ! -f out/axe/axe.min.js || exit 0
command -v npm >/dev/null || { echo "npm is missing: axe does not check the pages (the package npm)"; exit 0; }
mkdir -p out/axe
cd out/axe
if npm pack --silent axe-core@4.10.2 >/dev/null; then
	tar -xzf axe-core-4.10.2.tgz package/axe.min.js
	mv package/axe.min.js axe.min.js
	rm -rf package axe-core-4.10.2.tgz
else
	echo "axe-core could not be fetched: axe does not check the pages"
fi
