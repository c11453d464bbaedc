#!/usr/bin/env bash
# Soaks kube-proxy v1.12.2 and the bundled proxier with the same churn on the seeds 1 to 8, for docs/results/first-seed.md. Each soak ends at its
# first loss: the graceful termination of kube-proxy v1.12.2 hangs within minutes (kubernetes#71071). 18 planned hours of the bundled proxier
# last some 22 h, because a burst waits for its minute. That takes two hours and a half of one core without KVM. A committed result is not made again, unless FORCE=1.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/first-seed
common=(--controlplane replay --nodes 2 --rate 0.2 --runs 8)
valid=1
churn=(--set for=18h --set keepGoing=off --set replicas=1 --set trafficPolicy=Cluster --set checkTarget=nodePort
  --set drainedPorts=100 --set burstsPerHour=60 --set burst=400ms --set burstAt=1100ms)
row soak soak "${churn[@]}" --subject bundled --subject kube-proxy@v1.12.2/ipvs
compare_rows 9000
