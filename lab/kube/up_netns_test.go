//go:build netns

package kube_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/lab/kube"
	"github.com/hitless/hitless/lab/kube/kubetest"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
)

// The control plane is ready when Up returns, does little while nothing happens, and is gone after Down.
func TestUp(t *testing.T) {
	paths := kubetest.Binaries(t)
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
	t.Logf("up in %s: %v", time.Since(begin), plane.Timings)
	checkClients(t, plane)
	checkIdle(t, plane)
	running := map[string]*procs.Process{}
	for _, name := range kube.Programs() {
		running[name] = plane.Process(name)
	}
	if err := plane.Down(); err != nil {
		t.Error(err)
	}
	for name, p := range running {
		if p == nil || p.Running() {
			t.Errorf("%s is running after Down", name)
		}
	}
}

// checkClients asks as a proxy would, in both content types, and as nobody.
func checkClients(t *testing.T, plane *kube.ControlPlane) {
	t.Helper()
	path, err := plane.KubeconfigFor("system:kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	for _, contentType := range []string{"", "application/vnd.kubernetes.protobuf"} {
		client, err := kube.NewClient(path, contentType)
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes.Items) != 3 {
			t.Errorf("%d nodes with content type %q, want 3", len(nodes.Items), contentType)
		}
	}
	config, err := plane.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	config.CertData, config.KeyData = nil, nil
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Get(config.Host + "/api/v1/nodes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d for a client without a certificate, want 401", resp.StatusCode)
	}
}

// checkIdle measures the control plane while nothing happens: at most a tenth of a core.
func checkIdle(t *testing.T, plane *kube.ControlPlane) {
	t.Helper()
	const settle, span = 5 * time.Second, 20 * time.Second
	time.Sleep(settle) // a measurement, not a synchronisation
	before := usage(t, plane)
	time.Sleep(span)
	after := usage(t, plane)
	var total float64
	for _, name := range kube.Programs() {
		cpu := after[name].cpu - before[name].cpu
		total += cpu
		t.Logf("%-24s start %.2f s, idle %.2f s/min, %.0f context switches/s", name, before[name].cpu,
			cpu*60/span.Seconds(), (after[name].switches-before[name].switches)/span.Seconds())
	}
	if total > span.Seconds()/10 {
		t.Errorf("an idle control plane used %.2f s in %s, want at most a tenth", total, span)
	}
}

type used struct{ cpu, switches float64 }

// usage reads the CPU seconds and context switches of each program from /proc.
func usage(t *testing.T, plane *kube.ControlPlane) map[string]used {
	t.Helper()
	all := map[string]used{}
	for _, name := range kube.Programs() {
		dir := filepath.Join("/proc", strconv.Itoa(plane.Process(name).Pid()))
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		u := used{cpu: (number(t, fields[11]) + number(t, fields[12])) / 100} // utime and stime in USER_HZ
		threads, err := filepath.Glob(filepath.Join(dir, "task", "*", "status"))
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			status, err := os.ReadFile(thread)
			if err != nil {
				continue // the thread has ended
			}
			for line := range strings.Lines(string(status)) {
				if _, value, ok := strings.Cut(line, "ctxt_switches:"); ok {
					u.switches += number(t, strings.TrimSpace(value))
				}
			}
		}
		all[name] = u
	}
	return all
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
