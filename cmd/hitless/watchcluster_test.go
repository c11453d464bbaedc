//go:build unix

package main

import (
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/probes/watch"
	"github.com/hitless/hitless/reports"
)

// watchedCluster is a cluster with one Service, whose external IP is on loopback. It returns the kubeconfig.
func watchedCluster(t *testing.T) string {
	t.Helper()
	server := replay.New()
	api := httptest.NewServer(server.Handler())
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.Close()
		}
	}()
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, _ := strconv.Atoi(text)
	service := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", ExternalIPs: []string{"127.0.0.1"}, Ports: []corev1.ServicePort{{Port: int32(port)}}}}
	if _, err := server.Apply(service); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": "` + api.URL + `"}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A watch of a cluster that is killed goes on with `watch resume`, and says that time is missing. Until then a new one is refused.
func TestWatchOfAClusterIsResumed(t *testing.T) {
	t.Parallel()
	config, out := watchedCluster(t), t.TempDir()
	t.Cleanup(func() { _, _ = call(t, "watch", "stop", "--out", out) })
	if code, text := call(t, "watch", "start", "--kubeconfig", config, "--out", out, "--record", "all"); code != 0 || !strings.Contains(text, "measuring 1 addresses") {
		t.Fatalf("exit %d:\n%s", code, text)
	}
	s := until(t, out, "recorded", func(s watch.State) bool { return s.Attempts > 10 })
	if code, text := call(t, "watch", "resume", "--out", out); code != exitUsage || !strings.Contains(text, "nothing to resume") {
		t.Errorf("resumed while it runs: exit %d:\n%s", code, text)
	}
	kill(t, s, out)
	if code, text := call(t, "watch", "start", "--kubeconfig", config, "--out", out); code != exitUsage || !strings.Contains(text, "watch resume --out "+out) {
		t.Errorf("started after a kill: exit %d:\n%s", code, text)
	}
	if code, text := call(t, "watch", "resume", "--out", out); code != 0 {
		t.Fatalf("exit %d:\n%s", code, text)
	}
	until(t, out, "gone on", func(now watch.State) bool { return now.Attempts > s.Attempts+10 })
	code, text := call(t, "watch", "stop", "--out", out)
	r, err := analysis.Read(filepath.Join(out, reports.ReportFile))
	if err != nil {
		t.Fatalf("no report: %v\n%s", err, text)
	}
	missing := slices.ContainsFunc(r.Reasons, func(s string) bool { return strings.Contains(s, "a gap in the record of lane shop/web") })
	if code != r.Verdict.ExitCode() || r.Verdict != analysis.Invalid || !missing || len(r.Lanes) != 2 || r.Lanes[0].Attempts == 0 || r.Lanes[1].Attempts == 0 {
		t.Errorf("exit %d, %s with %d lanes: %q", code, r.Verdict, len(r.Lanes), r.Reasons)
	}
	if code, text := call(t, "watch", "resume", "--out", out); code != exitUsage || !strings.Contains(text, "no watch was killed") {
		t.Errorf("resumed after its end: exit %d:\n%s", code, text)
	}
}

// A killed watch goes on from another folder than that of `watch start`, whose paths were relative.
func TestWatchIsResumedFromAnyFolder(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	config, err := os.ReadFile(watchedCluster(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out", "watch")
	t.Cleanup(func() { _, _ = call(t, "watch", "stop", "--out", out) })
	in := func(folder string, args ...string) {
		t.Helper()
		c := program(args...)
		c.Path, c.Dir = self, folder
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("hitless %q: %v\n%s", args, err, text)
		}
	}
	in(dir, "watch", "start", "--kubeconfig", "config", "--record", "all")
	s := until(t, out, "recorded", func(s watch.State) bool { return s.Attempts > 5 })
	kill(t, s, out)
	in(elsewhere, "watch", "resume", "--out", filepath.Join("..", filepath.Base(dir), "out", "watch"))
	until(t, out, "gone on", func(now watch.State) bool { return now.Attempts > s.Attempts+5 })
	if _, text := call(t, "watch", "stop", "--out", out); !strings.Contains(text, "a gap in the record") {
		t.Errorf("the report is\n%s", text)
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("%v are in the folder of the call (%v)", left, err)
	}
}

// Wrong calls are one error each, with exit code 2, and leave no process.
func TestWatchOfAClusterThatCannotStart(t *testing.T) {
	t.Parallel()
	config, out := watchedCluster(t), t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"--kubeconfig " + config + " 127.0.0.1:80", "give one"},
		{"--selector a=b 127.0.0.1:80", "--kubeconfig FILE"},
		{"--listen 127.0.0.1:0 127.0.0.1:80", "--kubeconfig FILE"},
		{"", "or name a cluster"},
		{"--kubeconfig " + config + " --selector a=b", "no Service"},
		{"--kubeconfig " + config + " --target everywhere", "nodePort"},
		{"--kubeconfig " + config + "x", "reading the kubeconfig"},
	} {
		args := append([]string{"watch", "start", "--out", out}, strings.Fields(c.args)...)
		if code, text := call(t, args...); code != exitUsage || !strings.Contains(text, c.want) {
			t.Errorf("watch start %s: exit %d, want %d and %q:\n%s", c.args, code, exitUsage, c.want, text)
		}
		if s, err := watch.Status(out); err == nil {
			t.Errorf("watch start %s left a watch behind: %v", c.args, s)
		}
	}
	address, _ := target(t)
	plain := t.TempDir()
	started(t, address, plain)
	s := until(t, plain, "begun", func(s watch.State) bool { return s.Attempts > 0 })
	if err := unix.Kill(s.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := watch.Status(plain); err != nil {
			break
		}
	}
	if code, text := call(t, "watch", "resume", "--out", plain); code != exitUsage || !strings.Contains(text, "only those of clusters") {
		t.Errorf("a watch of an address was resumed: exit %d:\n%s", code, text)
	}
}
