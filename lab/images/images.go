// Package images is the table of the images that pods of a lab can run, and of what is in them. Nothing is pulled: their programs are built
// from the modules from which upstream builds them, or are of Debian packages. The package neither builds nor starts them.
package images

import (
	"path"
	"slices"
	"strings"

	"github.com/hitless/hitless/lab/build"
)

// Dir is the directory of the guest with the layers of the images. Tests set it.
var Dir = "/images"

// Image is what a pod's container needs of an image. Its tag and its registry do not matter.
type Image struct {
	Name            string
	Layers          []string // directories of the guest; the first with an entry counts
	Entrypoint, Cmd []string
	Env             []string
}

// Path is the PATH of containers.
const Path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Base is the layer with a shell and clients of DNS, HTTP and TCP.
const Base = "base"

func table() []Image {
	env := []string{Path}
	return []Image{
		// Upstream's has CoreDNS, too: specs of DNS start it.
		{Name: "agnhost", Layers: layers("agnhost", "coredns", Base), Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: env},
		{Name: "busybox", Layers: layers(Base), Cmd: []string{"sh"}, Env: env},
		{Name: "coredns", Layers: layers("coredns"), Entrypoint: []string{"/coredns"}, Env: env},
		// Upstream's has the same clients, linked with the same C library as here.
		{Name: "glibc-dns-testing", Layers: layers(Base), Cmd: []string{"sh"}, Env: env},
		// Upstream's pause is a program in C without arguments.
		{Name: "pause", Layers: layers("agnhost"), Entrypoint: []string{"/agnhost", "pause"}, Env: env},
		{Name: regression, Layers: layers(regression), Entrypoint: []string{"/" + regression}, Env: env},
	}
}

// regression sends the packets of kubernetes#74839 to a proxy.
const regression = "regression-issue-74839"

func layers(names ...string) (dirs []string) {
	for _, n := range names {
		dirs = append(dirs, path.Join(Dir, n))
	}
	return dirs
}

// Find returns the image of a reference such as registry.k8s.io/e2e-test-images/agnhost:2.66.1.
func Find(reference string) (Image, bool) {
	name := nameOf(reference)
	all := table()
	i := slices.IndexFunc(all, func(img Image) bool { return img.Name == name })
	if i < 0 {
		return Image{}, false
	}
	return all[i], true
}

// nameOf is a reference without its registry, path, tag and digest.
func nameOf(reference string) string {
	name, _, _ := strings.Cut(reference[strings.LastIndex(reference, "/")+1:], "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// Names are the names of all images, sorted.
func Names() (names []string) {
	for _, img := range table() {
		names = append(names, img.Name)
	}
	return names
}

// Targets are the programs of the images that are built from modules. Each is a file with its name in the layer with its name.
func Targets() (all []build.Target) {
	for _, name := range []string{"agnhost", "coredns", regression} {
		if t, known := build.Default(name); known {
			all = append(all, t)
		}
	}
	return all
}

// Clients are the programs of packages in Base.
func Clients() []string {
	return []string{"busybox", "curl", "dig", "getent", "ip", "nc.openbsd", "nslookup", "ss", "wget"}
}

// Links are the links in /usr/bin of Base: names of busybox's applets, and of nc.
func Links() []string { return slices.Clone(applets) }

// applets are those of Debian's busybox that no other client has. Its wget ends with a segmentation fault when it is given a timeout.
var applets = strings.Fields(`[ ash awk base64 basename cat chgrp chmod chown chroot clear cmp cp cut date dd df diff dirname dmesg dnsdomainname du
	echo egrep env expr false fgrep find fold free ftpget ftpput getopt grep groups gunzip gzip head hexdump hostname id ifconfig install kill
	killall ln logger ls md5sum mkdir mkfifo mknod mktemp more mount mv netstat nproc od paste ping ping6 printf ps pwd readlink realpath
	renice reset rev rm rmdir route sed seq sh sha1sum sha256sum sha512sum sleep sort stat strings stty su sync tac tail tar tee telnet test
	time timeout touch tr traceroute true truncate tty umount uname uniq unlink unzip uptime usleep vi watch wc which who whoami xargs
	yes zcat`)
