package site

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/cluster"
)

// countedClock counts how often it was asked.
type countedClock struct {
	cluster.RealClock
	asked atomic.Int32
}

func (c *countedClock) Now() time.Time {
	c.asked.Add(1)
	return c.RealClock.Now()
}

// A silence of the API server after the end of the record, while the namespace is deleted, is not recorded.
func TestSilenceAfterTheRecordIsNotRecorded(t *testing.T) {
	var requests atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ServiceList","apiVersion":"v1"}`))
	}))
	defer api.Close()
	clock := &countedClock{}
	r, err := newCluster(Call{Scenario: "rollout", Program: "/nowhere/hitless", Out: t.TempDir()}, LiveOptions{Kubeconfig: "x", Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	if r.cluster, err = cluster.New(&rest.Config{Host: api.URL}); err != nil {
		t.Fatal(err)
	}
	r.facts.Nodes = []cluster.Node{{Name: "node-1"}}
	if err := r.claim(r.command()); err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	if err := r.measure(t.Context()); err == nil {
		t.Fatal("it was measured without a probe worker")
	}
	before := clock.asked.Load()
	if _, err := r.cluster.Client.CoreV1().Services("run").List(t.Context(), metav1.ListOptions{}); err != nil || requests.Load() != 2 {
		t.Fatalf("%v after %d requests", err, requests.Load())
	}
	if after := clock.asked.Load(); after != before {
		t.Error("the silence was recorded after the record's end")
	}
}
