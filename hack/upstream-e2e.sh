#!/usr/bin/env bash
# Runs specs of Kubernetes' own e2e suite, unmodified, against a lab: builds e2e.test, ginkgo and kubectl, brings up a lab whose pods run the
# programs of their images, and runs the suite in the network of the lab's client.
#   SUBJECT   proxy of the lab (kube-proxy@v1.37.1/nftables)
#   KERNEL    host or vm (vm for the bundled proxier and the mode ipvs, whose IPVS namespaces of the host do not have; host for others)
#   FOCUS     regular expression of the specs; SKIP: of those left out
#   PROCS     specs at a time (the number of CPUs; 1 in a VM)
#   SET       parameters of the lab, separated by blanks (cloud=on)
#   BESIDE    program that runs beside the suite in the same network, with OUT, KUBECONFIG and KUBECTL: the suite begins when it prints a line,
#             and the lab ends after it. Its log is beside.log
#   OUT       folder of junit.xml, specs.tsv (result, seconds and name of each spec that ran), e2e.log, lab.log, and after a spec failed logs,
#             with the logs of the lab's programs (out/upstream-e2e)
# Exit code: 0 all specs passed, 1 a spec failed, 2 something else failed, 130 interrupted.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=${SUBJECT:-kube-proxy@v1.37.1/nftables}
focus=${FOCUS:-'\[sig-network\] (Services|LoadBalancers|EndpointSlice|Traffic Distribution|Conntrack|HostPort|DNS)'}
case $subject in bundled | */ipvs*) kernel=vm ;; *) kernel=host ;; esac
kernel=${KERNEL:-$kernel}
if [ "$kernel" = vm ]; then procs=1; else procs=$(nproc); fi
out=${OUT:-out/upstream-e2e}
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out/junit.xml" "$out/specs.tsv" # of an earlier call

fail() { echo "upstream-e2e: $*" >&2; exit 2; }

# Each line of its output is NAME@VERSION and a path; those with notes begin with a tab.
bin/hitless build e2e.test@v1.37.1 ginkgo@v2.32.0 kubectl@v1.37.1 >"$out/programs.txt" || fail "building the suite failed"
program() { awk -F'\t' -v name="$1@" 'index($1, name) == 1 { print $2 }' "$out/programs.txt"; }

# kernelOf prints the kernel of the lab.
kernelOf() {
  local guest qemu release version
  if [ "$kernel" = host ]; then
    echo "host $(uname -r)"
    return
  fi
  guest=$(bin/hitless build guest --subject "$subject") || return 1
  release=$(sed -nE 's/^kernel\t.*linux-image-([^_]*)_.*/\1/p' <<<"$guest")
  qemu=$(qemu-system-x86_64 --version) || return 1
  version=$(sed -nE '1s/.*version ([0-9.]*).*/\1/p' <<<"$qemu")
  [ -n "$release" ] && [ -n "$version" ] && echo "vm $release in QEMU $version"
}

# facts prints the first line of specs.tsv: what made it, for `hitless results check`.
facts() {
  local at hitless list name programs='' sum tools where
  where=$(kernelOf) || fail "the kernel of the lab is not known"
  tools=$(bin/hitless build guest-tools | sed -n 's/^\tsha256 //p') || fail "asking for the digest of the tools failed"
  [ -n "$tools" ] || fail "\`hitless build guest-tools\` tells no digest"
  bin/hitless build control-plane >>"$out/programs.txt" || fail "building the control plane failed"
  if [ "${subject%%@*}" = kube-proxy ]; then bin/hitless build "${subject%/*}" >>"$out/programs.txt" || fail "building ${subject%/*} failed"; fi
  list=$(grep -v "^$(printf '\t')" "$out/programs.txt") || fail "$out/programs.txt has no program"
  while read -r name at; do
    sum=$(sha256sum <"$at") || fail "the program $name could not be read"
    programs+="${programs:+,}{\"program\":\"$name\",\"sha256\":\"${sum%% *}\"}"
  done <<<"$list"
  hitless=$(bin/hitless version) || fail "\`hitless version\` failed"
  printf '# {"subject":"%s","programSha256":"%s","kernel":"%s","controlPlane":"kube","made":{"started":"%s","programs":[%s],"tools":"%s"}}\n' \
    "$subject" "${hitless##* }" "$where" "$started" "$programs" "$tools"
}

# keepLogs copies the logs of the lab's programs from the kubelet of a node, which serves those of all nodes.
keepLogs() {
  local kubectl at=/api/v1/nodes/node-1/proxy/logs name names
  kubectl=$(program kubectl)
  names=$("$kubectl" --kubeconfig="$out/kubeconfig" get --raw "$at/" | grep -oE 'href="[^"/]+' | cut -d'"' -f2) || return 1
  mkdir -p "$out/logs" || return 1
  for name in $names; do
    "$kubectl" --kubeconfig="$out/kubeconfig" get --raw "$at/$name" >"$out/logs/$name" || echo "upstream-e2e: the log $name could not be read" >&2
  done
}

trap 'exit 130' INT # ginkgo ends with the code of a failed spec then
started=$(date -u +%Y-%m-%dT%H:%M:%SZ)
made=$(facts) || exit # before the suite, which takes hours
sets=()
for s in ${SET-cloud=on}; do sets+=(--set "$s"); done
up=$(mktemp -u) && mkfifo "$up" "$up.beside"
beside=
bin/hitless lab up --kernel "$kernel" --images --subject "$subject" "${sets[@]}" --kubeconfig "$out/kubeconfig" >"$up" 2>"$out/lab.log" &
lab=$!
# At the end of the script some of these programs may have ended, and have nothing to be stopped.
trap 'kill $beside 2>/dev/null || true; kill -INT $lab 2>/dev/null || true; wait 2>/dev/null || true; rm -f "$up" "$up.beside" "$out/kubeconfig"' EXIT
# The line that says that the lab is up ends the wait; so does the end of the lab.
grep -q -m1 'the lab is up' <"$up" || { tail -n 20 "$out/lab.log" >&2; fail "the lab did not come up; the end of $out/lab.log is above"; }

if [ -n "${BESIDE-}" ]; then
  OUT=$out KUBECONFIG=$out/kubeconfig KUBECTL=$(program kubectl) bin/hitless lab shell --kubeconfig "$out/kubeconfig" -- bash -c "$BESIDE" \
    >"$up.beside" 2>"$out/beside.log" &
  beside=$!
  grep -q -m1 . <"$up.beside" || { tail -n 20 "$out/beside.log" >&2; fail "the program beside the suite ended early; the end of $out/beside.log is above"; }
fi

code=0
bin/hitless lab shell --kubeconfig "$out/kubeconfig" -- "$(program ginkgo)" --procs="${PROCS:-$procs}" --timeout="${TIMEOUT:-6h}" --no-color \
  --focus="$focus" --skip="${SKIP:-\\[Disruptive\\]}" --junit-report=junit.xml --output-dir="$out" "$(program e2e.test)" -- \
  --provider=skeleton --kubeconfig="$out/kubeconfig" --kubectl-path="$(program kubectl)" --num-nodes=3 --report-prefix=hitless \
  --disable-log-dump --dump-logs-on-failure=false >"$out/e2e.log" 2>&1 || code=$?
[ $code = 0 ] || keepLogs || echo "upstream-e2e: the logs of the lab's programs could not be read" >&2
if [ -n "$beside" ]; then
  [ $code = 0 ] || kill "$beside" 2>/dev/null || true # it may have ended with the suite
  wait "$beside" || [ $code != 0 ] || fail "the program beside the suite failed; see $out/beside.log"
fi
kill -0 $lab 2>/dev/null || fail "the lab ended before the suite did; see $out/lab.log"
[ -s "$out/junit.xml" ] || { tail -n 20 "$out/e2e.log" >&2; fail "the suite did not run; the end of $out/e2e.log is above"; }
{ grep -o '<testcase name="\[It\][^>]*>' "$out/junit.xml" || true; } | # also if there is no spec, or all were skipped
  sed -E '/status="skipped"/d; s/.*name="\[It\] ([^"]*)".*status="([^"]*)".*time="([0-9]+)[^"]*".*/\2\t\3\t\1/; s/&#34;|&quot;/"/g; s/&#39;/'"'"'/g; s/&amp;/\&/g; s/&lt;/</g; s/&gt;/>/g' |
  sort -t "$(printf '\t')" -k3 >"$out/specs.tsv.new"
if [ ! -s "$out/specs.tsv.new" ]; then
  rm "$out/specs.tsv.new"
  [ $code = 0 ] || { tail -n 20 "$out/e2e.log" >&2; fail "the suite ended before a spec ran; the end of $out/e2e.log is above"; }
  fail "no spec matches FOCUS=$focus"
fi
{ echo "$made"; cat "$out/specs.tsv.new"; } >"$out/specs.tsv.whole"
mv "$out/specs.tsv.whole" "$out/specs.tsv" # a file of that name is complete
rm "$out/specs.tsv.new"
grep -E '^(Ran [0-9]+ of|SUCCESS!|FAIL!|.*\[FAIL\])' "$out/e2e.log" || true
[ $code = 0 ] || exit 1
