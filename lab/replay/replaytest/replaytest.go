// Package replaytest serves the replay control plane to tests, and waits for events of watches.
package replaytest

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
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

// Next waits up to 20 s for the next event of a watch. A watch that ends fails the test.
func Next(t interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}, w watch.Interface) watch.Event {
	t.Helper()
	const patience = 20 * time.Second
	select {
	case e, open := <-w.ResultChan():
		if !open {
			t.Fatal("the watch was closed, want an event")
		}
		return e
	case <-time.After(patience):
		t.Fatalf("no event within %s", patience)
	}
	return watch.Event{}
}
