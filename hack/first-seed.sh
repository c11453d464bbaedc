#!/usr/bin/env bash
# Soaks kube-proxy v1.12.2 on eight seeds until its graceful termination hangs (kubernetes#71071), and the bundled proxier for a week in
# all on the same seeds and churn. SEEDS=1..2 takes fewer; FOR is the bundled proxier's time on each seed. The first half is half an hour
# on one idle core, the second hours.
set -euo pipefail
seeds=${SEEDS:-1..8}
churn=(--seeds "$seeds" --controlplane replay --nodes 2 --set replicas=1 --set trafficPolicy=Cluster --set checkTarget=nodePort
  --set drainedPorts=100 --set burstsPerHour=60 --set burst=400ms --set burstAt=1100ms)

status=0
bin/hitless soak --for 2h "${churn[@]}" --subject kube-proxy@v1.12.2/ipvs --out out/first-seed/v1.12.2 || status=$?
[ "$status" -eq 1 ] || { echo "kube-proxy v1.12.2 was not seen to hang on any of the seeds $seeds (exit code $status): what the bundled proxier does on them counts for nothing" >&2; exit 2; }
bin/hitless soak --for "${FOR:-21h}" "${churn[@]}" --subject bundled --out out/first-seed/bundled
