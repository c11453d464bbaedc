//go:build netns

package run_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/replay"
)

// pod makes this process look like a pod of the cluster: the kubelet's variables, and the account's files where a pod has them.
func pod(t *testing.T, api *httptest.Server, token string) {
	t.Helper()
	at, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", at.Hostname())
	t.Setenv("KUBERNETES_SERVICE_PORT", at.Port())
	const above, dir = "/var/run", "/var/run/secrets/kubernetes.io/serviceaccount"
	if err := unix.Mount("tmpfs", above, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(above, unix.MNT_DETACH) })
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"token": []byte(token), "namespace": []byte("hitless"),
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A run in a pod finds its cluster, uses its account's token over TLS, and checks permissions and facts. An unknown token is an error
// that says so.
func TestRunInAPodFindsItsCluster(t *testing.T) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := replay.New()
	for _, name := range []string{"worker-1", "worker-2"} {
		if _, err := server.Apply(&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}); err != nil {
			t.Fatal(err)
		}
	}
	unknown := refuse(apierrors.NewUnauthorized("Unauthorized"), func(r *http.Request) bool { return r.Header.Get("Authorization") != "Bearer of-the-pod" })
	api := httptest.NewTLSServer(unknown(server.Handler()))
	defer func() { api.CloseClientConnections(); api.Close() }()
	try := func() (said string, err error) {
		_, err = run.Run(t.Context(), run.Options{Scenario: "rollout", Out: t.TempDir(), Live: &site.LiveOptions{InCluster: true, DryRun: true},
			Progress: progress.Lines(func(text string) { said += text + "\n" })})
		return said, err
	}
	t.Run("its token", func(t *testing.T) {
		pod(t, api, "of-the-pod")
		if said, err := try(); err != nil || !strings.Contains(said, api.URL) || !strings.Contains(said, "2 nodes that take pods") {
			t.Errorf("%v, the output was:\n%s", err, said)
		}
	})
	t.Run("another token", func(t *testing.T) {
		pod(t, api, "of-nobody")
		if _, err := try(); !run.IsUsage(err) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("%v, want an error about the unknown token", err)
		}
	})
}
