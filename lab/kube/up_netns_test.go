//go:build netns

package kube_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/lab/kube"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
)

// binaries are the programs of the control plane, from the folder in HITLESS_BINARIES.
func binaries(t *testing.T) map[string]string {
	t.Helper()
	dir := os.Getenv("HITLESS_BINARIES")
	if dir == "" {
		t.Skip("HITLESS_BINARIES must name a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler")
	}
	paths := map[string]string{}
	for _, name := range kube.Programs() {
		paths[name] = filepath.Join(dir, name)
	}
	return paths
}

func TestUp(t *testing.T) {
	paths := binaries(t)
	network, err := topology.New(3)
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	supervisor, err := procs.New(filepath.Join(t.TempDir(), "logs"))
	if err != nil {
		t.Fatal(err)
	}
	defer supervisor.StopAll(time.Second)
	config := kube.Config{Binaries: paths, Dir: t.TempDir(), Procs: supervisor}
	for _, n := range network.Nodes {
		config.Nodes = append(config.Nodes, kube.NodeOf(n))
	}
	begin := time.Now()
	plane, err := kube.Up(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer plane.Down()
	t.Logf("up in %s: %v", time.Since(begin), plane.Timings)
	client, err := plane.Client("")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 3 {
		t.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	if s := os.Getenv("HOLD"); s != "" {
		d, _ := time.ParseDuration(s)
		time.Sleep(d)
		for _, name := range kube.Programs() {
			t.Logf("%s\n%s", name, supervisor.Tail(name, 5))
		}
	}
}
