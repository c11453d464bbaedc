package site

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
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

// readyToMeasure is a run on a cluster that it has looked at.
func readyToMeasure(t *testing.T, server, program string) *Cluster {
	t.Helper()
	r, err := newCluster(Call{Scenario: "rollout", Program: program, Out: t.TempDir()}, LiveOptions{Kubeconfig: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if r.cluster, err = cluster.New(&rest.Config{Host: server}); err != nil {
		t.Fatal(err)
	}
	r.facts.Nodes = []cluster.Node{{Name: "node-1"}}
	if err := r.claim(r.command()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(context.Background()) })
	return r
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
	r := readyToMeasure(t, api.URL, "/nowhere/hitless")
	r.live.Clock = clock
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

// The death of the probe worker ends a run at once, with this reason: it is no interruption by a person, although it ends requests.
func TestDeathOfTheWorkerEndsTheRun(t *testing.T) {
	over, cluster := make(chan struct{}), replay.New().Handler()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			cluster.ServeHTTP(w, r)
			return
		}
		select { // without an answer the run waits
		case <-r.Context().Done():
		case <-over:
		}
	}))
	defer api.Close()
	defer api.CloseClientConnections()
	defer close(over)
	worker := filepath.Join(t.TempDir(), "hitless")
	if err := os.WriteFile(worker, []byte("#!/bin/sh\nread first\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	measured := make(chan error, 1)
	go func() { measured <- readyToMeasure(t, api.URL, worker).measure(t.Context()) }()
	select {
	case err := <-measured:
		if err == nil || errors.Is(err, context.Canceled) || err.Error() != "the probe worker ended with exit status 3" {
			t.Errorf("the run ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a minute after the worker's end the run goes on")
	}
}

// If the pods of the proxy cannot be found, they are not watched, and the record says so.
func TestUnwatchedProxyIsRecorded(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/daemonsets/kube-proxy") {
			replay.New().Handler().ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
	}))
	defer api.Close()
	r := readyToMeasure(t, api.URL, "/nowhere/hitless")
	_, params, err := scenarios.Select("upgrade", LiveOffers, map[string]string{"proxy": "kube-system/ds/kube-proxy"})
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]int{"the proxy": 1, "no proxy": 0} {
		if r.params = params; want == 0 {
			r.params = nil
		}
		var tape recorded
		r.watch(t.Context(), &tape, func() time.Duration { return time.Second })()
		found := 0
		for _, e := range tape.events {
			if body, is := e.Body.(record.Log); is && body.Level == "warning" && e.Object == "proxy" {
				found++
			}
		}
		if found != want {
			t.Errorf("%s: %d warnings in %+v, want %d", given, found, tape.events, want)
		}
	}
}
