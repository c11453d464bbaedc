#!/usr/bin/env bash
# Runs a test program for `go test -exec`. Adds its wall time, its CPU time in user mode and in the kernel (seconds, with those of the programs
# that it waited for), and its package to programs.tsv.
root=$(cd "$(dirname "$0")/.." && pwd)
TIMEFORMAT="%R	%U	%S	${PWD#"$root"/}"
# File descriptors 3 and 4 are the streams of the test program; `time` writes to the file.
{ time "$@" >&3 2>&4; } 3>&1 4>&2 2>>"$HITLESS_TIMES/programs.tsv"
