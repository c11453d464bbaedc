package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/support"
)

// made is a provider that creates no cluster and stores its calls.
type made struct {
	support.E2EClusterProvider
	name, config string
	create       func() error
	destroy      error
	destroyed    []string
	late         error // of the context of Destroy
}

func (m *made) WithName(name string) support.E2EClusterProvider { m.name = name; return m }

func (m *made) CreateWithConfig(_ context.Context, file string) (string, error) {
	data, err := os.ReadFile(file)
	m.config = string(data)
	if err == nil && m.create != nil {
		err = m.create()
	}
	return "a-kubeconfig", err
}

func (m *made) Destroy(ctx context.Context) error {
	m.destroyed, m.late = append(m.destroyed, m.name), ctx.Err()
	return m.destroy
}

func TestThrowawayClusterIsCreatedAndDeleted(t *testing.T) {
	m := &made{}
	c, err := MakeThrowaway(t.Context(), m, "v1.25.3", 2)
	if err != nil {
		t.Fatal(err)
	}
	if c.Kubeconfig != "a-kubeconfig" || !strings.HasPrefix(c.Name, "hitless-v1-25-3-") || c.Name != m.name {
		t.Errorf("%+v, and the provider has the name %s", c, m.name)
	}
	if strings.Count(m.config, "kindest/node:v1.25.3\n") != 3 || strings.Count(m.config, "role: worker") != 2 || strings.Count(m.config, "role: control-plane") != 1 {
		t.Errorf("the configuration is\n%s", m.config)
	}
	if len(m.destroyed) != 0 {
		t.Error("it was deleted at once")
	}
	other, err := MakeThrowaway(t.Context(), &made{}, "v1.25.3", 2)
	if err != nil || other.Name == c.Name {
		t.Errorf("two clusters have the name %s (%v)", c.Name, err)
	}
	if err := c.Delete(t.Context()); err != nil || len(m.destroyed) != 1 || m.destroyed[0] != c.Name {
		t.Errorf("%v, deleted were %q", err, m.destroyed)
	}
}

// An incomplete cluster is deleted, also after an interrupt, and the error has the reason.
func TestIncompleteThrowawayClusterIsDeleted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		create func() error
		is     error
		want   string
	}{
		"no image":    {func() error { return errors.New("no such image") }, nil, "no such image"},
		"interrupted": {func() error { cancel(); return errors.New("signal: killed") }, context.Canceled, "context canceled"},
	} {
		m := &made{create: c.create}
		in := t.Context()
		if c.is != nil {
			in = ctx
		}
		_, err := MakeThrowaway(in, m, "v1.26.0", 3)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), m.name) {
			t.Errorf("%s: %v", name, err)
		}
		if len(m.destroyed) != 1 || m.late != nil {
			t.Errorf("%s: deleted were %q, with a context that was over: %v", name, m.destroyed, m.late)
		}
	}
}

func TestUndeletedThrowawayClusterIsNamed(t *testing.T) {
	m := &made{destroy: errors.New("the engine is gone")}
	c, err := MakeThrowaway(t.Context(), m, "v1.26.0", 3)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Delete(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the engine is gone") || !strings.Contains(err.Error(), "kind delete cluster --name "+c.Name) {
		t.Errorf("%v", err)
	}
}

// play puts a script named kind first in PATH.
func play(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kind"), []byte("#!/bin/sh\n"+strings.ReplaceAll(script, "DIR", dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// Without kind or a container engine nothing is started, and the errors distinguish the two.
func TestKindIsLookedForFirst(t *testing.T) {
	play(t, "echo 'ERROR: failed to list clusters: is the docker daemon running?' >&2; exit 1")
	if _, err := Kind(t.Context()); err == nil || !strings.Contains(err.Error(), "is the docker daemon running?") || !strings.Contains(err.Error(), "container engine") {
		t.Errorf("%v, want kind's output and what it needs", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Kind(t.Context()); err == nil || !strings.Contains(err.Error(), "install both") {
		t.Errorf("%v, want what to install", err)
	}
}

// The framework's provider calls kind correctly: it creates the cluster with our nodes, returns its kubeconfig, and deletes only that
// cluster. The user's kubeconfig stays as it is.
func TestKindsProvider(t *testing.T) {
	const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://192.0.2.1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c`
	dir := play(t, `echo "$*" >> DIR/calls
case "$1 $2" in
"get clusters") [ ! -e DIR/clusters ] || cat DIR/clusters ;;
"create cluster") echo "$4" > DIR/clusters; cp "$6" DIR/config; echo added >> "$KUBECONFIG" ;;
"get kubeconfig") cat DIR/kubeconfig ;;
"delete cluster") echo deleted >> "$KUBECONFIG"; [ "$4" = "$(cat DIR/clusters)" ] && rm DIR/clusters ;;
*) exit 9 ;;
esac
`)
	if err := os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	users := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(users, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", users)
	provider, err := Kind(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := MakeThrowaway(t.Context(), provider, "v1.26.0", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(c.Kubeconfig, ""); err != nil {
		t.Error(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil || string(config) != kindConfig("v1.26.0", 1) {
		t.Errorf("kind was given the configuration %q (%v)", config, err)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(users); err != nil || string(text) != kubeconfig || os.Getenv("KUBECONFIG") != users {
		t.Errorf("KUBECONFIG is %s, and the user's has (%v):\n%s", os.Getenv("KUBECONFIG"), err, text)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || !strings.Contains(string(calls), "delete cluster --name "+c.Name+"\n") {
		t.Errorf("kind was called with (%v):\n%s", err, calls)
	}
	if _, err := os.Stat(filepath.Join(dir, "clusters")); !os.IsNotExist(err) {
		t.Errorf("the cluster still exists: %v", err)
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("%v is left in the folder for temporary files", left[0].Name())
	}
}

func TestVersionsOfKind(t *testing.T) {
	for version, good := range map[string]bool{"v1.26.0": true, "v1.37.1": true, "1.26.0": false, "v1.26": false, "latest": false, "v1.26.0 --image x": false} {
		if err := CheckKindVersion(version); (err == nil) != good {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// sleepless is a clock whose sleeps only advance it.
type sleepless struct {
	now    time.Time
	sleeps int
}

func (s *sleepless) Now() time.Time { return s.now }
func (s *sleepless) Sleep(ctx context.Context, d time.Duration) error {
	s.now, s.sleeps = s.now.Add(d), s.sleeps+1
	return ctx.Err()
}

// The nodes of a new cluster are waited for on the cluster's clock.
func TestSettleWaitsOnTheClockOfTheCluster(t *testing.T) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	c := answering(t, map[string]any{"/version": map[string]string{"gitVersion": "v1.37.1"}, "/api/v1/nodes": corev1.NodeList{Items: []corev1.Node{node}}})
	clock := &sleepless{now: time.Unix(0, 0)}
	c.SetClock(clock)
	if err := c.Settle(t.Context(), 1, time.Hour); err != nil || clock.sleeps > 0 {
		t.Errorf("one node after %d sleeps: %v", clock.sleeps, err)
	}
	if err := c.Settle(t.Context(), 2, 5*time.Second); err == nil || clock.sleeps == 0 || clock.now.Before(time.Unix(5, 0)) {
		t.Errorf("two nodes after %d sleeps, at %v: %v", clock.sleeps, clock.now, err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("no more")
	cancel(reason)
	if err := c.Settle(gone, 2, time.Minute); !errors.Is(err, reason) {
		t.Errorf("after the end of its context: %v", err)
	}
}
