#!/usr/bin/env bash
# Soaks kube-proxy v1.12.2 on eight seeds until its graceful termination hangs (kubernetes#71071); at least half of them must hang. Then
# soaks the bundled proxier on the same seeds and churn. SEEDS=1..2 uses fewer seeds. FOR is the planned churn of the bundled proxier on
# each seed: 18h last some 22 h, because a burst waits for its minute. The parts take half an hour and an hour on two idle cores.
set -euo pipefail
seeds=${SEEDS:-1..8} out=out/first-seed
churn=(--seeds "$seeds" --controlplane replay --nodes 2 --set replicas=1 --set trafficPolicy=Cluster --set checkTarget=nodePort
  --set drainedPorts=100 --set burstsPerHour=60 --set burst=400ms --set burstAt=1100ms)
# The report of a hang has a stale backend for minutes, and a node that fails the load balancer's check of its NodePort.
hang='kept [0-9.]+ in IPVS for [0-9]{3,}(–[0-9]{3,})? s after its process exited;.* failed its health checks'

rm -rf "$out/v1.12.2" # else the reports of other seeds count too
status=0
bin/hitless soak --for 2h "${churn[@]}" --subject kube-proxy@v1.12.2/ipvs --out "$out/v1.12.2" || status=$?
[ "$status" -le 1 ] || { echo "soaking kube-proxy v1.12.2 ended with exit code $status" >&2; exit "$status"; }
reports=("$out"/v1.12.2/seed-*/report.json)
hung=0
for report in "${reports[@]}"; do
  if grep -qE "$hang" "$report"; then hung=$((hung + 1)); fi
done
echo "kube-proxy v1.12.2 hung on $hung of ${#reports[@]} seeds"
[ $((2 * hung)) -ge ${#reports[@]} ] || { echo "fewer than half of the seeds show the hang, so the soak of the bundled proxier would prove nothing" >&2; exit 2; }
bin/hitless soak --for "${FOR:-18h}" "${churn[@]}" --subject bundled --out "$out/bundled"
