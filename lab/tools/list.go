// Package tools has the programs that proxies call in a guest, with their shared libraries: iptables, ipset, conntrack, nft, haproxy, a
// shell and coreutils; for proxies in BPF also clang and bpftool. They come from packages of Debian that packages.txt and compiler.txt
// pin, and not from this machine.
package tools

import (
	"crypto/sha256"
	_ "embed" // for the list of packages
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hitless/hitless/lab/debian"
)

//go:embed packages.txt
var pinned string

// pinnedCompiler are the packages that a guest with a compiler for BPF has besides those of pinned.
//
//go:embed compiler.txt
var pinnedCompiler string

// pinnedForPods are the packages of images of pods.
//
//go:embed pods.txt
var pinnedForPods string

// Purpose says whose programs a set of tools has.
type Purpose int

// The purposes of tools.
const (
	ForGuests    Purpose = iota // iptables, ipset, nft, conntrack, haproxy, and what scripts need
	ForCompilers                // likewise, with a compiler for BPF
	ForPods                     // what images of pods have besides programs of Go modules: a shell and clients of DNS, HTTP and TCP
)

// pins are the packages of a purpose.
func (p Purpose) pins() (list, error) {
	if p == ForPods {
		return parseList(pinnedForPods)
	}
	l, err := parseList(pinned)
	if err != nil || p == ForGuests {
		return l, err
	}
	more, err := parseList(pinnedCompiler)
	return append(l, more...), err
}

const architecture = debian.Architecture

// Package is a package of Debian.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Sha256  string `json:"sha256"` // in hex
	Path    string `json:"path"`   // below the address of a mirror
}

// String is NAME_VERSION.
func (p Package) String() string { return p.Name + "_" + p.Version }

// file is the name of the package in the cache, which has its digest.
func (p Package) file() string {
	return strings.TrimSuffix(path.Base(p.Path), packageSuffix) + "-" + p.Sha256 + packageSuffix
}

const packageSuffix = ".deb"

// list is packages, one a line: NAME VERSION ARCHITECTURE SHA256 PATH.
type list []Package

func parseList(text string) (l list, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 5 || words[2] != architecture || !isSha256(words[3]) || !strings.HasSuffix(words[4], packageSuffix) {
			return nil, fmt.Errorf("the list of the guest's tools, line %d: %q; want NAME VERSION %s SHA256 PATH", n, strings.TrimSpace(line), architecture)
		}
		l = append(l, Package{words[0], words[1], words[3], words[4]})
	}
	return l, nil
}

func isSha256(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == sha256.Size && strings.ToLower(text) == text
}

func (l list) String() string {
	var b strings.Builder
	for _, p := range l {
		fmt.Fprintf(&b, "%s %s %s %s %s\n", p.Name, p.Version, architecture, p.Sha256, p.Path)
	}
	return b.String()
}

// without is the list without the packages of another one.
func (l list) without(other list) list {
	return slices.DeleteFunc(slices.Clone(l), func(p Package) bool { return slices.Contains(other, p) })
}

// digest identifies the packages of the list.
func (l list) digest() string {
	sum := sha256.Sum256([]byte(l.String()))
	return hex.EncodeToString(sum[:])[:24]
}

// listed is a package as the package lists of Debian describe it.
func listed(text string) (Package, error) {
	p := Package{debian.Field(text, "Package:"), debian.Field(text, "Version:"), debian.Field(text, "SHA256:"), debian.Field(text, "Filename:")}
	if p.Name == "" || p.Version == "" || !isSha256(p.Sha256) || p.Path == "" || debian.Field(text, "Architecture:") != architecture {
		return p, fmt.Errorf("the package lists have no whole description of it for %s", architecture)
	}
	return p, nil
}
