#!/usr/bin/env bash
# Unpacks the Debian package prometheus in out/prometheus, for tests. Its installation would start a server.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0
[ -x out/prometheus/usr/bin/promtool ] && exit 0
rm -rf out/prometheus.new && mkdir -p out/prometheus.new
cd out/prometheus.new
apt-get download -q prometheus >/dev/null 2>&1 || { echo "the package prometheus cannot be downloaded: run apt-get update, or install prometheus" >&2; exit 2; }
dpkg -x prometheus_*.deb .
rm -rf ../prometheus && mv ../prometheus.new ../prometheus
