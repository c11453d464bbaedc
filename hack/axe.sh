#!/bin/sh
# Fetches axe.min.js of the npm package axe-core into out/axe, for the tests of `make browser`.
set -eu
cd "$(dirname "$0")/.."
sum=b511cd9dec01c76f4b2ad1723b66b6db37d4c2eb4ed199076e1829d9ee7b75e3
same() { echo "$sum  $1" | sha256sum --check --status; }
mkdir -p out/axe
cd out/axe
if test -f axe.min.js && same axe.min.js; then exit 0; fi
npm pack --silent axe-core@4.10.2 >/dev/null || { echo "fetching axe-core 4.10.2 by npm failed; see that its registry can be reached" >&2; exit 1; }
tar -xzf axe-core-4.10.2.tgz package/axe.min.js
same package/axe.min.js || { echo "axe.min.js of axe-core 4.10.2 is not the file that hack/axe.sh expects" >&2; exit 1; }
mv package/axe.min.js axe.min.js
rm -rf package axe-core-4.10.2.tgz
