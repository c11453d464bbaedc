#!/usr/bin/env bash
# Runs the triggers of bugs that the museum does not have, for docs/results/museum-tried.md: half an hour on two cores without KVM. Rows
# with a file in docs/results/museum-tried are not run again, unless FORCE=1. SUBSET=k8s-89392,k8s-133773 runs only these rows. A row that
# fails does not stop the others; the exit code is 1 then.
set -euo pipefail
# shellcheck source=hack/rows.sh
. "$(dirname "$0")/rows.sh"
results=docs/results/museum-tried
common=(--controlplane replay)

# The name of a row is the issue. The first subject has the bug, as the issue tells; the others have not, or are another mode.
proxy() { printf -- '--subject kube-proxy@%s ' "$@"; }
# shellcheck disable=SC2046 # no argument has a space
{
  row k8s-89392 drain --set what=poweroff --set lanes=tcp-new,tcp-long --rate 10 --runs 1 $(proxy v1.37.1/ipvs v1.37.1/iptables v1.37.1/nftables)
  row k8s-99162 rollout --set target=nodePort --set reuse=10s --set trafficPolicy=Cluster --set replicas=2 --rate 50 --runs 2 $(proxy v1.20.15/ipvs v1.37.1/ipvs)
  row k8s-109286 upgrade --set to=kube-proxy@v1.25.16/iptables --set cleanup=on --set roll=on --set replicas=2 --rate 20 --runs 1 $(proxy v1.24.17/ipvs v1.25.16/ipvs)
  row k8s-121362 churn --set for=10m --rate 10 --runs 2 $(proxy v1.27.2/iptables v1.27.16/iptables)
  row k8s-126532 drain --set what=reboot --set off=20s --set lanes=tcp-new,udp-sticky --rate 50 --runs 2 $(proxy v1.31.0/iptables v1.31.14/iptables)
  row k8s-133773 upgrade --set to=itself --set cleanup=on --set others=1000 --set client=node --set target=clusterIP --rate 50 --runs 1 $(proxy v1.37.1/ipvs v1.37.1/nftables)
  row k8s-135323 rollout --set lanes=tcp-new,udp-fresh --set rollouts=1 --rate 300 --runs 1 $(proxy v1.35.4/iptables v1.36.0/iptables)
  row k8s-128829 flap --nodes 1 --set antiAffinity=off --set openConnections=8 --set unready=100ms --set stayOpen=1s --set watch=0s --set flaps=100 --set askEvery=50ms --rate 10 --runs 1 $(proxy v1.29.15/nftables v1.30.14/nftables)
  row k8s-139513 rollout --set others=3000 --set rollouts=1 --rate 20 --runs 1 $(proxy v1.36.0/nftables v1.36.3/nftables)
  row cilium-37577 rollout --set client=pod --set target=clusterIP --set lanes=tcp-new,udp-sticky --set trafficPolicy=Cluster --set replicas=2 --set rollouts=1 --rate 20 --runs 1 --subject cilium@v1.15.19 --subject cilium@v1.20.2
  row k8s-99299 rollout --nodes 6 --set trafficPolicy=Local --set loadBalancer=haproxy --set replicas=3 --set rollouts=2 --rate 10 --runs 1 $(proxy v1.20.15/iptables v1.37.1/iptables)
  row k8s-131134 restart --set change=ready --set trafficPolicy=Cluster --set lanes=tcp-new,tcp-long --rate 20 --runs 1 $(proxy v1.37.1/ipvs v1.37.1/nftables)
  row k8s-141272 recreate --set trafficPolicy=Local --rate 20 --runs 1 $(proxy v1.37.1/iptables v1.37.1/ipvs v1.37.1/nftables)
  row k8s-138927 rollout --set others=3000 --set rollouts=1 --rate 20 --runs 1 $(proxy v1.36.3/ipvs v1.37.1/ipvs)
}
compare_rows 180
