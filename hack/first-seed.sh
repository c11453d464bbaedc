#!/usr/bin/env bash
# Soaks kube-proxy v1.12.2 on eight seeds until its graceful termination hangs (kubernetes#71071), which at least half of them must show,
# and the bundled proxier on the same seeds and churn. SEEDS=1..2 takes fewer. FOR is how long the bundled proxier's churn is planned to
# last on each seed: 18h last some 22 h, because a burst waits for its minute, and with eight seeds a week in all. The first part is
# half an hour on two idle cores, the second an hour and more.
set -euo pipefail
seeds=${SEEDS:-1..8} out=out/first-seed
churn=(--seeds "$seeds" --controlplane replay --nodes 2 --set replicas=1 --set trafficPolicy=Cluster --set checkTarget=nodePort
  --set drainedPorts=100 --set burstsPerHour=60 --set burst=400ms --set burstAt=1100ms)
# What the report of a hang says: minutes with a dead pod's address, and a node that fails the balancer's check of its NodePort.
hang='kept [0-9.]+ in IPVS for [0-9]{3,}(–[0-9]{3,})? s after its process exited;.* failed its health checks'

rm -rf "$out/v1.12.2" # reports of other seeds would be counted
status=0
bin/hitless soak --for 2h "${churn[@]}" --subject kube-proxy@v1.12.2/ipvs --out "$out/v1.12.2" || status=$?
[ "$status" -le 1 ] || { echo "soaking kube-proxy v1.12.2 ended with exit code $status" >&2; exit "$status"; }
reports=("$out"/v1.12.2/seed-*/report.json)
hung=0
for report in "${reports[@]}"; do
  if grep -qE "$hang" "$report"; then hung=$((hung + 1)); fi
done
echo "kube-proxy v1.12.2 hung on $hung of ${#reports[@]} seeds"
[ $((2 * hung)) -ge ${#reports[@]} ] || { echo "half of the seeds were to show the hang: what the bundled proxier does on them counts for nothing" >&2; exit 2; }
bin/hitless soak --for "${FOR:-18h}" "${churn[@]}" --subject bundled --out "$out/bundled"
