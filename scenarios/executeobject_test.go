package scenarios

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/hitless/hitless/scenarios/timeline"
)

// An API server refuses an object in a namespace that does not exist. A step of a timeline creates it.
func TestApplyingAnObjectCreatesItsNamespace(t *testing.T) {
	made := map[string]bool{}
	served := map[string]any{
		"/api":  metav1.APIVersions{Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{},
		"/api/v1": metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "services", Kind: "Service", Namespaced: true}, {Name: "namespaces", Kind: "Namespace"}}},
	}
	const object, space = "/api/v1/namespaces/other/services", "/api/v1/namespaces"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if lists := served[r.URL.Path]; lists != nil {
			json.NewEncoder(w).Encode(lists)
			return
		}
		if r.Method == http.MethodPost && (r.URL.Path == space || made[space]) {
			made[r.URL.Path] = true
			w.WriteHeader(http.StatusCreated)
			w.Write([]byte("{}"))
			return
		}
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404})
	}))
	defer server.Close()
	cluster, err := resources.New(&restclient.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	step := timeline.Step{Verb: "object apply", JSON: `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"other"}}`}
	if err := (executor{&World{Cluster: cluster}}).ApplyObject(t.Context(), step); err != nil || !made[object] {
		t.Errorf("made %v, %v", made, err)
	}
}
