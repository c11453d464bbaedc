package cluster

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestOpenInPodFailsOutsideAPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := OpenInPod(); err == nil || !strings.Contains(err.Error(), "--kubeconfig FILE") {
		t.Errorf("%v, want advice for use outside a pod", err)
	}
}

// Both clients reach the API server with the configuration of a pod: a token file and the cluster's certificate.
func TestTokenFileIsUsed(t *testing.T) {
	var shown []string
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"gitVersion":"v1.37.1"}`))
	}))
	defer api.Close()
	dir := t.TempDir()
	files := map[string][]byte{"token": []byte("of-the-pod"), "ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := New(&rest.Config{Host: api.URL, BearerTokenFile: filepath.Join(dir, "token"), TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil || version.GitVersion != "v1.37.1" || len(shown) != 1 || shown[0] != "Bearer of-the-pod" {
		t.Errorf("%v, %v; the credentials were %q", version, err, shown)
	}
}

// A server that does not tell its version keeps nobody for longer than the caller waits.
func TestFactsEndWithTheContext(t *testing.T) {
	asked, over := make(chan struct{}, 1), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}))
	defer api.Close()
	defer close(over)
	c, err := New(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() {
		_, err := c.Facts(ctx)
		read <- err
	}()
	<-asked
	cancel()
	select {
	case err := <-read:
		if err == nil {
			t.Error("there are facts")
		}
	case <-time.After(answerTimeout / 2):
		t.Error("the context has ended, and the facts are still read")
	}
}
