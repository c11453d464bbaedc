#!/usr/bin/env bash
# Tests in network namespaces of this machine's kernel. Those of internal/routing wait for kube-proxy most of the time, and run beside the others.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$PWD/out/control-plane
rm -rf "$programs" && mkdir -p "$programs"

# built prints the paths of programs.
built() { bin/hitless build "$@" | cut -sf2 | grep ^/; }

# inside runs tests in user, network and mount namespaces of their own.
inside() { unshare -rnm hack/gotest.sh -count=1 -tags netns "$@"; }

others() {
  inside ./lab/kube
  inside ./lab/kubelet
  inside -run TheRealAPIServer ./lab/replay
  inside -parallel 8 ./probes
  inside -run TestPickNodeIsTheKernelsOwn ./record
  inside ./lab/topology ./lab/container
  inside ./lab/balancer
  inside ./observers ./observers/capture
  inside -run 'FullDisk|ReadOnly' ./internal/cache
  inside ./lab/subject
  inside -run 'FullDisk|Doctor' ./cmd/hitless
  inside -run InAPod ./internal/run
}

built control-plane | xargs -I{} ln -s {} "$programs/"
HITLESS_KUBE_PROXY=$(built kube-proxy@v1.37.1)
HITLESS_OLD_KUBE_PROXY=$(built kube-proxy@v1.25.3)
export HITLESS_BINARIES=$programs HITLESS_KUBE_PROXY HITLESS_OLD_KUBE_PROXY
trap 'exit 130' INT # else bash goes on after tests that were interrupted
set -m # the tests beside are a process group of their own
inside ./internal/routing >out/routing.log 2>&1 &
routing=$!
set +m # Ctrl-C reaches this script only if the other tests are of its process group
trap 'if kill -0 -- -"$routing" 2>/dev/null; then kill -- -"$routing"; fi' EXIT # after a failure or Ctrl-C
others
status=0
wait "$routing" || status=$?
cat out/routing.log
exit "$status"
