package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/internal/progress"
	"github.com/hitless/hitless/internal/run"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/lab/replay/replaytest"
	"github.com/hitless/hitless/probes"
)

// A live run starts its own program as the probe worker, which is the test binary here.
func init() {
	if len(os.Args) > 1 && os.Args[1] == probes.WorkerName {
		if err := probes.Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// refuse answers requests with an API error if when returns true.
func refuse(why *apierrors.StatusError, when func(r *http.Request) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !when(r) {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(why.ErrStatus.Code))
			status := why.ErrStatus
			status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			_ = json.NewEncoder(w).Encode(status)
		})
	}
}

var (
	expired    = apierrors.NewUnauthorized("Unauthorized")
	namespaces = schema.GroupResource{Resource: "namespaces"}
)

// spacesOf returns the names of the namespaces that runs have left.
func spacesOf(t *testing.T, kubeconfig string) []string {
	t.Helper()
	list, err := clientOf(t, kubeconfig).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, ns := range list.Items {
		names = append(names, ns.Name)
	}
	return names
}

func clientOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return kubernetes.NewForConfigOrDie(config)
}

// A token that has expired before the run is a usage error with advice, and the run tries to write nothing.
func TestLiveRunWithExpiredToken(t *testing.T) {
	var wrote atomic.Bool
	_, kubeconfig := newLiveCluster(t, 3, func(next http.Handler) http.Handler {
		return notes(&wrote, refuse(expired, func(*http.Request) bool { return true })(next))
	})
	_, _, err := runOn(t, kubeconfig, "rollout", nil)
	if !run.IsUsage(err) {
		t.Fatalf("%v, want a usage error", err)
	}
	for _, want := range []string{"expired", "log in again"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	if wrote.Load() {
		t.Error("a write was tried")
	}
}

// A token that expires during the run makes it invalid, and the output names the namespace that could not be deleted.
func TestLiveRunWithExpiringToken(t *testing.T) {
	var over atomic.Bool
	_, kubeconfig := newLiveCluster(t, 3, func(next http.Handler) http.Handler {
		late := refuse(expired, func(*http.Request) bool { return true })(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if over.Load() {
				late.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
			if replaytest.Verb(r) == "create deployments.apps" {
				over.Store(true)
			}
		})
	})
	var said []string
	out, _, err := runOn(t, kubeconfig, "rollout", func(o *run.Options) { o.Progress = progress.Lines(func(text string) { said = append(said, text) }) })
	if !errors.As(err, new(*run.InvalidError)) || !strings.Contains(err.Error(), "log in again") || !strings.Contains(err.Error(), "Service web") {
		t.Errorf("%v, want an invalid run whose error has its last action and advice", err)
	}
	last := said[len(said)-1]
	if !strings.Contains(last, "hitless-rollout-") || !strings.Contains(last, "hitless clean") {
		t.Errorf("the last message was %q, want the namespace that is left and the command that deletes it", last)
	}
	over.Store(false)
	if names := spacesOf(t, kubeconfig); len(names) != 1 || !strings.Contains(last, names[0]) {
		t.Errorf("%v are left, the last message was %q", names, last)
	}
	host, err := os.ReadFile(filepath.Join(out, "host.json"))
	if err != nil || !strings.Contains(string(host), "hitless-rollout-") {
		t.Errorf("host.json does not name the namespace that is left: %v", err)
	}
	if err := site.Clean(t.Context(), site.LiveOptions{Kubeconfig: kubeconfig}, time.Minute, func(string) {}); err != nil {
		t.Error(err)
	}
	if names := spacesOf(t, kubeconfig); len(names) != 0 {
		t.Errorf("%v are left after hitless clean", names)
	}
}

// The error about a namespace that is not deleted has its name and the cluster's reason.
func TestStuckNamespaceIsNamed(t *testing.T) {
	server, kubeconfig := newLiveCluster(t, 1, refuse(&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK}},
		func(r *http.Request) bool { return r.Method == http.MethodDelete }))
	for name, labels := range map[string]map[string]string{"hitless-rollout-abcde": {"app.kubernetes.io/managed-by": "hitless"}, "shop": nil} {
		ns := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating, Conditions: []corev1.NamespaceCondition{{
				Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue,
				Message: "Some content in the namespace has finalizers remaining: service.kubernetes.io/load-balancer-cleanup in 1 resource instances"}}}}
		if _, err := server.Apply(ns); err != nil {
			t.Fatal(err)
		}
	}
	err := site.Clean(t.Context(), site.LiveOptions{Kubeconfig: kubeconfig}, 10*time.Millisecond, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "hitless-rollout-abcde") || !strings.Contains(err.Error(), "load-balancer-cleanup") || strings.Contains(err.Error(), "shop") {
		t.Errorf("%v, want only the namespace of the run, and the reason", err)
	}
}
