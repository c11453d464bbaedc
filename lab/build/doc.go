// Package build makes the upstream programs that a lab runs: the Kubernetes control plane and kube-proxy of any version
// from 1.11 on, and etcd. They are built from their published Go modules with the go command of this machine, checked
// against the checksum database, and kept in a cache; a directory of ready binaries can stand in for building.
//
// One mechanism serves every version. The module of the program is downloaded; the versions of its dependencies come
// from its go.mod (1.15 and later, etcd) or from Godeps.json and a table of pins (up to 1.14); imports are walked from
// the main package to learn which modules are really needed; and a go.mod is written that replaces each of them with
// exactly the wanted version. Nothing is patched. Where something had to be taken instead of what upstream names, the
// binary's notes say so.
//
// The binaries are not upstream's release artifacts: the sources are the same, but for what the notes say, the compiler
// is not. The package is not for starting programs, and not for building hitless itself.
package build
