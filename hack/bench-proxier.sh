#!/usr/bin/env bash
# Measures the bundled proxier beside kube-proxy, all in one VM with the virtual clock. SERVICES=100,1000 leaves the longest
# part out; the whole takes hours where the VM has no KVM.
set -euo pipefail
mkdir -p out/bench
bin/hitless bench-proxier --services "${SERVICES:-100,1000,10000}" --out out/bench/proxier > out/bench/proxier.md
cat out/bench/proxier.md
