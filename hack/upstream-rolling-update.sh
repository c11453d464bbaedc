#!/usr/bin/env bash
# Runs upstream's spec "should not have connectivity disruption during rolling update" against a lab, and beside it `hitless watch` of the same
# Service, from the same network. Each counts for itself. It takes 17 minutes.
#   SUBJECT   proxy of the lab (kube-proxy@v1.25.3/iptables, which drops connections)
#   POLICY    externalTrafficPolicy of the spec: Local or Cluster (Local)
#   OUT       folder of both results: upstream.log has what upstream counted, watch/ has the report of hitless (out/upstream-rolling-update)
# The figures of a run with the default SUBJECT and POLICY go to docs/results/upstream-rolling-update and its page, whichever verdict it has;
# `go run ./hack/docs rolling-update DIR PROXY` takes those of a folder.
# Exit code: that of hack/upstream-e2e.sh. The verdict of hitless is in watch/report.json.
set -euo pipefail
cd "$(dirname "$0")/.."
pictured=kube-proxy@v1.25.3/iptables
export SUBJECT=${SUBJECT:-$pictured} OUT=${OUT:-out/upstream-rolling-update}
export TZ=UTC # of the suite's log and the watch
if [ "${1-}" != beside ]; then
  code=0
  FOCUS="rolling update with externalTrafficPolicy=${POLICY:-Local}" PROCS=1 BESIDE="hack/upstream-rolling-update.sh beside" hack/upstream-e2e.sh || code=$?
  [ $code -lt 2 ] || exit $code
  {
    sed -nE 's/.*"started": *"([^"]*)".*/the watch began at \1/p' "$OUT/watch/host.json"
    sed 's/&#xA;/\n/g; s/&#34;/"/g' "$OUT/junit.xml" |
      grep -E '\] (Update daemon pods environment|Got error testing for|Load Balancer total HTTP|Network errors|HTTP errors|Success rate)'
  } >"$OUT/upstream.log"
  if [ "$SUBJECT ${POLICY:-Local}" = "$pictured Local" ]; then
    ${GO:-go} run ./hack/docs rolling-update "$OUT" "${SUBJECT/@/ }"
    echo "the tables of docs/results/upstream-rolling-update.md are of this run; the text between them has figures of the run before" >&2
  fi
  exit $code
fi

# A watch begins with a Service that nothing changes: upstream's appears later, and changes at once.
{
  "$KUBECTL" create deployment unchanged --image=agnhost -- /agnhost netexec --http-port=80
  "$KUBECTL" expose deployment unchanged --type=LoadBalancer --port=80
  "$KUBECTL" wait --timeout=2m --for=condition=Available deployment/unchanged
  "$KUBECTL" wait --timeout=2m --for=jsonpath='{.status.loadBalancer.ingress[0].ip}' service/unchanged
  curl --silent --show-error --fail --retry 60 --retry-delay 1 --retry-all-errors --max-time 1 \
    "http://$("$KUBECTL" get service unchanged -o jsonpath='{.status.loadBalancer.ingress[0].ip}')/hostname"
  # Addresses of its own: a load balancer remembers five-tuples that were lost, and upstream's client would meet those of the watch.
  ip route add local 198.51.100.64/28 dev lo
  bin/hitless watch start --kubeconfig "$KUBECONFIG" --rate 50 --path /hostname --record all --source 198.51.100.64/28 --out "$OUT/watch"
} >&2
trap 'bin/hitless watch stop --out "$OUT/watch" >&2 || true' EXIT # a verdict is no failure of this script
echo "the watch measures"

name=test-lb-rolling-update
# The Service changes once more when it gets its address, which ends kubectl.
namespace=$("$KUBECTL" get services --all-namespaces --field-selector "metadata.name=$name" --watch -o jsonpath='{.metadata.namespace}{"\n"}' | head -n 1 || true)
# The spec updates the pods five times, then deletes them, which is no rolling update.
"$KUBECTL" -n "$namespace" wait --timeout=1h --for=jsonpath='{.spec.template.spec.containers[0].env[0].value}'=5 "daemonset/$name" >&2
"$KUBECTL" -n "$namespace" rollout status "daemonset/$name" >&2
