#!/usr/bin/env bash
# Installs missing system packages that a run needs. With names of groups it installs those of these groups instead, such as `packages.sh "tests lint"`.
# internal/run/packages.txt has the list and its groups, and hack/packages.txt those that only this repository needs. `hitless doctor --install`
# installs those of a run, without this repository. Only this step needs root.
# Exit code: 0 nothing is missing any more, 2 there is no such group, or root is needed; else that of apt-get.
set -eu
here=$(dirname "$0")
list=$(grep -hv '^#' "$here/../internal/run/packages.txt" "$here/packages.txt")
groups=" ${1:-lab make} "
for group in $groups; do
  grep -q "^$group " <<<"$list" || { echo "no group of packages is called $group; the groups are $(awk '!seen[$1]++ { print $1 }' <<<"$list" | paste -sd' ')" >&2; exit 2; }
done
missing=()
while read -r group program package _; do
  case $groups in *" $group "*) ;; *) continue ;; esac
  command -v "$program" >/dev/null 2>&1 || [ -x "/usr/sbin/$program" ] || missing+=("$package")
done <<<"$list"
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
