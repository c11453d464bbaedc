package replaytest

import (
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hitless/hitless/lab/replay"
)

// Each request of a client has its verb of RBAC, and only writes of objects are writes.
func TestVerbsOfRequests(t *testing.T) {
	for request, want := range map[string]struct {
		verb   string
		writes bool
	}{
		"GET /version":                                                      {"", false},
		"GET /api/v1/nodes":                                                 {"list nodes", false},
		"GET /api/v1/nodes?watch=true":                                      {"watch nodes", false},
		"GET /api/v1/nodes/a":                                               {"get nodes", false},
		"GET /api/v1/namespaces/a/pods":                                     {"list pods", false},
		"DELETE /api/v1/namespaces/a":                                       {"delete namespaces", true},
		"GET /api/v1/namespaces/a/pods/b":                                   {"get pods", false},
		"POST /api/v1/namespaces/a/services":                                {"create services", true},
		"PATCH /api/v1/namespaces/a/pods/b/status":                          {"patch pods/status", true},
		"PUT /apis/apps/v1/namespaces/a/deployments/b":                      {"update deployments.apps", true},
		"GET /apis/discovery.k8s.io/v1/endpointslices?watch=1":              {"watch endpointslices.discovery.k8s.io", false},
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":       {"create selfsubjectaccessreviews.authorization.k8s.io", false},
		"POST /api/v1/namespaces/a/pods/b/eviction":                         {"create pods/eviction", true},
		"GET /api/v1/namespaces/a/pods/b:8080/proxy/records?after=7":        {"get pods/proxy", false},
		"GET /apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy":    {"get daemonsets.apps", false},
		"PATCH /apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy?": {"patch daemonsets.apps", true},
	} {
		method, url, _ := strings.Cut(request, " ")
		r, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := Verb(r); got != want.verb || Writes(r) != want.writes {
			t.Errorf("%s is %q, a write: %t; want %q, %t", request, got, Writes(r), want.verb, want.writes)
		}
	}
}

// A user lacks the verbs that are withheld, and no others.
func TestWithheldVerbsAreDenied(t *testing.T) {
	server := replay.New()
	AddNodes(t, server, "192.0.2.1", "worker-1")
	config, err := clientcmd.BuildConfigFromFlags("", Serve(t, Withhold("patch pods/status", "create deployments.apps")(server.Handler())))
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	for of, allowed := range map[authorizationv1.ResourceAttributes]bool{
		{Verb: "patch", Resource: "pods", Subresource: "status"}:    false,
		{Verb: "patch", Resource: "pods"}:                           true,
		{Verb: "create", Resource: "deployments", Group: "apps"}:    false,
		{Verb: "create", Resource: "deployments", Group: "a.other"}: true,
	} {
		asked := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &of}}
		got, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), asked, metav1.CreateOptions{})
		if err != nil || got.Status.Allowed != allowed {
			t.Errorf("%+v: %v, allowed %t; want %t", of, err, got.Status.Allowed, allowed)
		}
	}
	if nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil || len(nodes.Items) != 1 {
		t.Errorf("%v, %v: other requests do not reach the server", nodes, err)
	}
}
