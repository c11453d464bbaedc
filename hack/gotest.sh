#!/usr/bin/env bash
# `go test` as all scripts call it. Programs without debugging information link twice as fast, and `make lint` vets.
exec "${GO:-go}" test -trimpath -gcflags=all=-dwarf=false -vet=off -ldflags=-w "$@"
