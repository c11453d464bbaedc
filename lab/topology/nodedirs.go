package topology

import (
	"path"
	"strings"
)

// nodeDirs are the directories that are a node's own, besides /sys. /var/run is /run.
var nodeDirs = []string{"/run", "/var/lib"}

// Private reports whether a path in the guest is in a directory that is each node's own.
func Private(name string) bool {
	name = path.Clean(name) + "/"
	for _, dir := range append([]string{"/var/run", "/sys"}, nodeDirs...) {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}
