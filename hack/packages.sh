#!/usr/bin/env bash
# Installs missing system packages that a run needs; `packages.sh browser` those of `make browser` instead. Only this step needs root.
set -eu
missing=()
need() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || missing+=("$2"); }
if [ "${1:-}" = browser ]; then
  need chromium chromium
  need npm npm
  [ ${#missing[@]} -eq 0 ] && exit 0
else
  need qemu-system-x86_64 qemu-system-x86
  need xtables-nft-multi iptables
  need ipset ipset
  need conntrack conntrack
  need nft nftables
  need haproxy haproxy
  need git git
  [ ${#missing[@]} -eq 0 ] && [ -n "$(apt-cache depends linux-image-cloud-amd64 2>/dev/null)" ] && exit 0
fi
sudo=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null 2>&1 || { echo "these packages are missing: ${missing[*]:-package lists}; install them as root" >&2; exit 2; }
  sudo=sudo
fi
$sudo apt-get update -q
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing ${missing[*]}"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
