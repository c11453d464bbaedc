# shellcheck shell=bash
# A function for scripts that make a folder anew which the user may name. Such scripts source this file.

# marker is in each folder that a script made.
marker=.hitless-made

# empty_folder empties a folder, or makes it: path, the default. It refuses what may be the user's: a folder that is not empty and has no marker.
empty_folder() {
  if [ "$1" != "$2" ] && [ -e "$1" ] && [ ! -e "$1/$marker" ] && ! rmdir "$1" 2>/dev/null; then
    echo "$1 is not a folder of this script: give another, or remove it" >&2
    exit 2
  fi
  rm -rf "$1"
  mkdir -p "$1"
  touch "$1/$marker"
}
