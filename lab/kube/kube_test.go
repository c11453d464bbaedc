package kube

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
)

// script writes a shell script that replaces a program and fails.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func testConfig(t *testing.T, program string) Config {
	t.Helper()
	supervisor, err := procs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Binaries: map[string]string{}, Dir: t.TempDir(), Procs: supervisor}
	for _, name := range Programs() {
		c.Binaries[name] = program
	}
	return c
}

func TestUpReportsTheFailedProgramAndItsLog(t *testing.T) {
	tests := []struct {
		name     string
		script   string
		deadline time.Duration
		says     []string
	}{
		{"it ends", "echo no space left; exit 3", time.Minute, []string{"etcd ended (exit status 3)", "no space left"}},
		{"it hangs", "echo thinking; exec sleep 60", 3 * time.Second, []string{"etcd became healthy", "deadline", "3s", "thinking"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig(t, script(t, tt.script))
			c.Deadline = tt.deadline
			_, err := Up(t.Context(), c)
			if err == nil {
				t.Fatal("it came up")
			}
			for _, text := range tt.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error does not say %q:\n%v", text, err)
				}
			}
		})
	}
}

func TestDownStopsAFailedStart(t *testing.T) {
	c := &ControlPlane{config: testConfig(t, script(t, "exec sleep 60"))}
	c.config.Deadline = 300 * time.Millisecond
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	if err := c.up(t.Context()); err == nil {
		t.Fatal("it came up")
	}
	p := c.Process(Etcd)
	if p == nil || !p.Running() {
		t.Fatal("the test program does not run, so the test proves nothing")
	}
	if err := c.Down(); err != nil {
		t.Error(err)
	}
	if p.Running() {
		t.Error("etcd is still running")
	}
}

// startAll starts scripts instead of the programs.
func startAll(t *testing.T, c *ControlPlane) {
	t.Helper()
	for _, name := range Programs() {
		if _, err := c.start(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = c.Down() })
}

// A program that ends while the lab runs is reported with its log.
func TestWatchReportsAProgramThatEnds(t *testing.T) {
	for _, name := range Programs() {
		t.Run(name, func(t *testing.T) {
			c := &ControlPlane{config: testConfig(t, script(t, "exec sleep 60"))}
			c.config.Binaries[name] = script(t, "echo no space left; exit 3")
			startAll(t, c)
			err := c.Watch(t.Context())
			for _, want := range []string{name + " ended (exit status 3)", "no space left"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
		})
	}
}

// Programs that end with the lab are not reported.
func TestWatchEndsWithTheLab(t *testing.T) {
	c := &ControlPlane{config: testConfig(t, script(t, "exec sleep 60"))}
	startAll(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- c.Watch(ctx) }()
	cancel()
	if err := c.Down(); err != nil {
		t.Error(err)
	}
	if err := <-watched; err != nil {
		t.Errorf("the end of the lab is taken for a failure: %v", err)
	}
}

func TestUpReportsMissingConfiguration(t *testing.T) {
	missing := testConfig(t, "/nowhere/program")
	unnamed := testConfig(t, script(t, "exit 0"))
	delete(unnamed.Binaries, Scheduler)
	bare := Config{Binaries: testConfig(t, script(t, "exit 0")).Binaries}
	for text, config := range map[string]Config{"/nowhere/program": missing, "kube-scheduler": unnamed, "Procs": bare} {
		if _, err := Up(t.Context(), config); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want one that says %q", err, text)
		}
	}
}

func TestKubeconfigs(t *testing.T) {
	c := &ControlPlane{config: testConfig(t, script(t, "exit 0"))}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	if err := c.certify(t.Context()); err != nil {
		t.Fatal(err)
	}
	path, err := c.KubeconfigFor("system:kube-proxy/node-1")
	if err != nil {
		t.Fatal(err)
	}
	if path == c.Kubeconfig || filepath.Dir(path) != c.config.Dir {
		t.Errorf("path %s, want a file of its own in %s", path, c.config.Dir)
	}
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := raw.AuthInfos["system:kube-proxy/node-1"]; !ok {
		t.Errorf("users %v", raw.AuthInfos)
	}
	config, err := restConfig(path, "application/vnd.kubernetes.protobuf")
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://10.0.0.2:6443" ||
		config.ContentType != "application/vnd.kubernetes.protobuf" || config.QPS >= 0 {
		t.Errorf("host %s, content type %q, QPS %v", config.Host, config.ContentType, config.QPS)
	}
	if _, err := c.KubeconfigFor(""); err == nil {
		t.Error("a kubeconfig for nobody was written")
	}
}

func TestCreateNode(t *testing.T) {
	network := &topology.Node{Namespace: &topology.Namespace{Name: "node-2"}, Number: 2,
		Addr: topology.ControlAddr.Next(), PodCIDR: topology.ClusterCIDR}
	n := NodeOf(network)
	n.Labels = map[string]string{"pool": "a"}
	client := fake.NewClientset()
	if err := CreateNode(t.Context(), client, n); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Nodes().Get(t.Context(), "node-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"kubernetes.io/hostname": "node-2", "topology.kubernetes.io/zone": "zone-2", "pool": "a",
		"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
	if diff := cmp.Diff(labels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	addresses := []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.3"}, {Type: "Hostname", Address: "node-2"}}
	if diff := cmp.Diff(addresses, got.Status.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.244.0.0/16"}, got.Spec.PodCIDRs); diff != "" {
		t.Errorf("pod ranges (-want +got):\n%s", diff)
	}
	if err := CreateNode(t.Context(), client, Node{Name: "node-3"}); err == nil {
		t.Error("a node without an address was registered")
	}
}
