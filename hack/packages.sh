#!/usr/bin/env bash
# Installs missing system packages that a run needs; `packages.sh tests` those that tests need of this machine, and `packages.sh browser`
# those of `make browser` instead. Only this step needs root.
# internal/run/packages.txt has the list. `hitless doctor --install` installs the same, without this repository.
set -eu
groups=" ${1:-lab make} "
missing=()
while read -r group program package _; do
  case $groups in *" $group "*) ;; *) continue ;; esac
  command -v "$program" >/dev/null 2>&1 || [ -x "/usr/sbin/$program" ] || missing+=("$package")
done <"$(dirname "$0")/../internal/run/packages.txt"
if [ ${#missing[@]} -eq 0 ]; then
  [ -z "${1:-}" ] || exit 0
  [ -z "$(apt-cache depends linux-image-cloud-amd64 2>/dev/null)" ] || exit 0
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
