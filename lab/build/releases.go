package build

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Programs tells where upstream's programs come from.
type Programs string

// The sources of programs.
const (
	Built    Programs = "built"    // compiled here from their modules; the zero value means the same
	Released Programs = "released" // upstream's release artifacts
	Prebuilt Programs = "prebuilt" // files of the user; only the source of a Binary
)

// Variables of the environment that name mirrors of upstream's releases.
const (
	kubernetesMirror = "HITLESS_KUBERNETES_RELEASES"
	etcdMirror       = "HITLESS_ETCD_RELEASES"
)

// upstream has the addresses of releases, by the variables that replace them.
var upstream = map[string]string{
	kubernetesMirror: "https://dl.k8s.io",
	etcdMirror:       "https://github.com/etcd-io/etcd/releases/download",
}

// release is the release artifact of a target.
type release struct {
	target   Target
	mirror   string     // variable that names a mirror
	path     string     // of the artifact below the base address
	artifact *url.URL   // what to download
	sums     []*url.URL // files with published checksums; the first one that exists counts
	member   string     // the program's path in the artifact, if that is an archive
}

// releaseOf returns the artifact of a target at upstream's address or at that of a mirror.
func releaseOf(t Target) (release, error) {
	r := release{target: t, mirror: kubernetesMirror}
	var sums []string
	if t.Name == "etcd" {
		name := "etcd-" + t.Version + "-linux-" + Architecture
		r.mirror, r.path, r.member = etcdMirror, t.Version+"/"+name+".tar.gz", name+"/etcd"
		sums = []string{t.Version + "/SHA256SUMS"}
	} else {
		r.path = t.Version + "/bin/linux/" + Architecture + "/" + t.Name
		sums = []string{r.path + ".sha256", r.path + ".sha512"}
	}
	base, err := baseAddress(r.mirror)
	if err != nil {
		return r, err
	}
	r.artifact = base.JoinPath(r.path)
	for _, path := range sums {
		r.sums = append(r.sums, base.JoinPath(path))
	}
	return r, nil
}

// baseAddress is upstream's address or that of a mirror.
func baseAddress(mirror string) (*url.URL, error) {
	text := os.Getenv(mirror)
	if text == "" {
		text = upstream[mirror]
	}
	base, err := url.Parse(text)
	switch {
	case err != nil: // the error has the text, which may have a password
		return nil, fmt.Errorf("%s is no address; give one as %s", mirror, upstream[mirror])
	case base.Host == "" || base.Scheme != "https" && base.Scheme != "http":
		return nil, fmt.Errorf("%s=%s: give an address with https or http, as %s", mirror, base.Redacted(), upstream[mirror])
	}
	return base, nil
}

// releaseRecipe is part of the key. It is increased for changes of downloads that no other part of the key shows.
const releaseRecipe = "released 1"

// entry is the name of the release's entry. Another mirror has other entries. Credentials do not count.
func (r release) entry() string {
	address := *r.artifact
	address.User = nil
	return entryName(r.target, digest(releaseRecipe, r.target.String(), address.String(), r.member)[:24])
}

// releasedPrefix begins the names of locks of releases.
const releasedPrefix = "released_"

// lockName is the name of the release's lock, and of the directory with its unfinished download.
func (r release) lockName() string { return releasedPrefix + r.entry() }

// releasedDir is the directory of a store with the entries of releases.
func (s store) releasedDir() string { return filepath.Join(s.dir, "released") }

// checksumIn finds the checksum of the artifact in a published file, which has the checksum alone or lines of checksums and names.
func (r release) checksumIn(text string) (string, bool) {
	name := r.path[strings.LastIndexByte(r.path, '/')+1:]
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 1 && r.member == "" || len(words) == 2 && strings.TrimPrefix(words[1], "*") == name {
			return strings.ToLower(words[0]), true
		}
	}
	return "", false
}
