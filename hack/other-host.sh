#!/usr/bin/env bash
# Compares the guest of this machine with that of another distribution, byte for byte: Debian 13 in a folder that is the root, which gets nothing of this
# machine but bin/hitless, and the mirrors in its package lists. Both have all tools of guests. Needs root and debootstrap. OTHER names that
# folder, which is made once and stays. It must be new, empty or of this script. With arguments, runs them there instead: `hack/other-host.sh hitless doctor`.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=hack/folder.sh
. hack/folder.sh
usual=$(realpath -m out/other-host/debian-13)
root=$(realpath -m "${OTHER:-$usual}")
command -v debootstrap >/dev/null || { echo "debootstrap is not installed; \`apt-get install debootstrap\` installs it" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "another root folder needs root" >&2; exit 2; }
mirror() { apt-get indextargets --format "\$(ORIGIN) \$(LABEL) \$(REPO_URI)" 'Created-By: Packages' | awk -v label="$1" '$1 == "Debian" && $2 == label { print $3; exit }'; }
if [ ! -e "$root/made" ]; then
  empty_folder "$root" "$usual"
  debootstrap --variant=minbase --include=ca-certificates trixie "$root" "$(mirror Debian)"
  { echo "deb $(mirror Debian) trixie main"; echo "deb $(mirror Debian-Security) trixie-security main"; } >"$root/etc/apt/sources.list"
  touch "$root/made"
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp bin/hitless "$root/usr/local/bin/hitless"
# inside runs a command with the folder as its root. Its mounts are in a mount namespace, and end with it.
# shellcheck disable=SC2016 # the inner shell expands them
inside() {
  unshare -m bash -ec 'root=$1; shift
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"; mount --rbind /sys "$root/sys"; mount --rbind /dev "$root/dev"
    cd "$root"; pivot_root . mnt; umount -l /mnt # a lab on this kernel refuses a chroot
    exec /usr/bin/env -i HOME=/root TERM="${TERM:-dumb}" PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' - "$root" "$@"
}
if [ $# -gt 0 ]; then
  inside "$@"
  exit
fi
inside apt-get update -q
mkdir -p out
# bundled needs no program of upstream, and so no Go; the scenario and the balancer need all tools.
guest=(build guest interference --set what=flush --set loadBalancer=haproxy --controlplane replay)
bin/hitless "${guest[@]}" >out/guest-here.txt
inside hitless "${guest[@]}" >out/guest-there.txt
# The last field of a line about files is the place in the cache.
if ! diff <(sed 's/\t\/.*//' out/guest-here.txt) <(sed 's/\t\/.*//' out/guest-there.txt); then
  echo "the guest of $(. /etc/os-release; echo "$PRETTY_NAME") is not that of Debian 13: the lines that differ are above" >&2
  exit 1
fi
sed 's/\t\/.*//' out/guest-here.txt
echo "the same on $(. /etc/os-release; echo "$PRETTY_NAME") and on Debian 13"
