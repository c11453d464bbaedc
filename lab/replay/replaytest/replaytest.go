// Package replaytest serves the replay control plane to tests of live clusters.
package replaytest

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hitless/hitless/lab/replay"
)

// Context is the only context of each kubeconfig.
const Context = "c"

// Serve serves a handler until the test ends, and returns its kubeconfig.
func Serve(t testing.TB, handler http.Handler) (kubeconfig string) {
	t.Helper()
	api := httptest.NewServer(handler)
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	return Kubeconfig(t, api.URL)
}

// Kubeconfig writes a kubeconfig for an API server, and returns its name.
func Kubeconfig(t testing.TB, url string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: url}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{}
	config.Contexts[Context] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = Context
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// AddNodes adds nodes that take pods, all with one address.
func AddNodes(t testing.TB, server *replay.Server, address string, names ...string) {
	t.Helper()
	for _, name := range names {
		node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
		if _, err := server.Apply(node); err != nil {
			t.Fatal(err)
		}
	}
}
