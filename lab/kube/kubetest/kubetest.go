// Package kubetest is for tests that bring up the real control plane. It is not for building its programs.
package kubetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hitless/hitless/lab/kube"
)

// Binaries are the paths of the control plane's programs, for kube.Config, in the folder that HITLESS_BINARIES names. A test without
// it is skipped: compiling them takes minutes and the network, which a test in a namespace does not have.
func Binaries(t *testing.T) map[string]string {
	t.Helper()
	dir := os.Getenv("HITLESS_BINARIES")
	if dir == "" {
		t.Skip("HITLESS_BINARIES must name a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler; make netns makes one")
	}
	paths := map[string]string{}
	for _, name := range kube.Programs() {
		paths[name] = filepath.Join(dir, name)
	}
	return paths
}
