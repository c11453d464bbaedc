package replay_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	rules       = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "rules"}
)

// ruleDefinition defines rules.example.com, stored as v1 and also served as v1alpha1.
func ruleDefinition() *unstructured.Unstructured {
	open := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	version := func(name string, storage bool) map[string]any {
		return map[string]any{"name": name, "served": true, "storage": storage, "schema": open, "subresources": map[string]any{"status": map[string]any{}}}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "rules.example.com"},
		"spec": map[string]any{"group": "example.com", "scope": "Namespaced",
			"names":    map[string]any{"plural": "rules", "singular": "rule", "kind": "Rule", "listKind": "RuleList"},
			"versions": []any{version("v1alpha1", false), version("v1", true)}}}}
}

func rule(name string, limit int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Rule",
		"metadata": map[string]any{"name": name, "namespace": "default", "labels": map[string]any{"name": name}},
		"spec":     map[string]any{"limit": limit}, "status": map[string]any{"seen": false}}}
}

// customResources makes requests for a custom resource before, during and after its definition, and returns what was answered.
func customResources(t *testing.T, config *rest.Config) (lines []string) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, all, some := t.Context(), client.Resource(definitions), client.Resource(rules).Namespace("default")
	record := func(what string, u *unstructured.Unstructured, err error) {
		t.Helper()
		if err != nil {
			lines = append(lines, fmt.Sprintf("%s: %s", what, apierrors.ReasonForError(err)))
			return
		}
		text, err := json.Marshal(map[string]any{"version": u.GetAPIVersion(), "labels": u.GetLabels(), "generation": u.GetGeneration(), "spec": u.Object["spec"], "status": u.Object["status"]})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s: %s", what, text))
	}
	_, err = some.List(ctx, metav1.ListOptions{})
	record("list before the definition", nil, err)
	bad := ruleDefinition()
	bad.SetName("others.example.com")
	_, err = all.Create(ctx, bad, metav1.CreateOptions{})
	record("define with another name", nil, err)
	if _, err = all.Create(ctx, ruleDefinition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the definition is established", func() bool {
		u, err := all.Get(ctx, "rules.example.com", metav1.GetOptions{})
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		return err == nil && slices.ContainsFunc(conditions, func(c any) bool { m := c.(map[string]any); return m["type"] == "Established" && m["status"] == "True" })
	})
	eventually(t, "its objects are served", func() bool { _, err := some.List(ctx, metav1.ListOptions{}); return err == nil })
	_, err = all.Create(ctx, ruleDefinition(), metav1.CreateOptions{})
	record("define again", nil, err)
	watch, err := some.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	made, err := some.Create(ctx, rule("a", 1), metav1.CreateOptions{})
	record("create", made, err)
	_, err = some.Create(ctx, rule("a", 1), metav1.CreateOptions{})
	record("create again", nil, err)
	status := made.DeepCopy()
	status.Object["status"], status.Object["spec"] = map[string]any{"seen": true}, map[string]any{"limit": int64(7)}
	got, err := some.UpdateStatus(ctx, status, metav1.UpdateOptions{})
	record("update the status", got, err)
	_, err = some.Update(ctx, made, metav1.UpdateOptions{})
	record("update a stale one", nil, err)
	got.Object["spec"], got.Object["status"] = map[string]any{"limit": int64(2), "any": []any{"x"}}, map[string]any{"seen": "no"}
	got, err = some.Update(ctx, got, metav1.UpdateOptions{})
	record("update", got, err)
	got, err = some.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"any":null,"limit":3}}`), metav1.PatchOptions{})
	record("merge", got, err)
	_, err = some.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"spec":{"limit":4}}`), metav1.PatchOptions{})
	record("merge by the keys of lists", nil, err)
	got, err = client.Resource(rules.GroupResource().WithVersion("v1alpha1")).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
	record("get in the other version", got, err)
	_, err = client.Resource(rules.GroupResource().WithVersion("v2")).Namespace("default").Get(ctx, "a", metav1.GetOptions{})
	record("get in a version that is not served", nil, err)
	if _, err := some.Create(ctx, rule("b", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	found, err := some.List(ctx, metav1.ListOptions{LabelSelector: "name=b"})
	lines = append(lines, fmt.Sprintf("list by a label: %d of %s, %v", len(found.Items), found.GetKind(), err))
	lines = append(lines, partialMetadata(t, config)...)
	if err := some.Delete(ctx, "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		e := <-watch.ResultChan()
		u, is := e.Object.(*unstructured.Unstructured)
		if !is {
			t.Fatalf("the watch gave %s of %T", e.Type, e.Object)
		}
		record(fmt.Sprintf("watch: %s %s", e.Type, u.GetName()), u, nil)
	}
	served, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerResourcesForGroupVersion("example.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range served.APIResources {
		slices.Sort(r.Verbs)
		lines = append(lines, fmt.Sprintf("discovery: %s %s %t %s", r.Name, r.Kind, r.Namespaced, r.Verbs))
	}
	if err := all.Delete(ctx, "rules.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e := <-watch.ResultChan()
	lines = append(lines, fmt.Sprintf("watch: %s of what was left", e.Type))
	eventually(t, "nothing serves its objects", func() bool { _, err := some.List(ctx, metav1.ListOptions{}); return apierrors.IsNotFound(err) })
	return lines
}

// partialMetadata lists and watches the metadata of the objects, without their content.
func partialMetadata(t *testing.T, config *rest.Config) (lines []string) {
	t.Helper()
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	some := client.Resource(rules).Namespace("default")
	list, err := some.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		lines = append(lines, fmt.Sprintf("metadata: %s %v", o.Name, o.Labels))
	}
	watch, err := some.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for range list.Items {
		e := <-watch.ResultChan()
		lines = append(lines, fmt.Sprintf("watch of metadata: %s %T", e.Type, e.Object))
	}
	return lines
}

// Custom resources are served from their definition until it is deleted; netns tests compare these answers with the real server's.
func TestCustomResources(t *testing.T) {
	want := strings.Split(strings.TrimSpace(`
list before the definition: NotFound
define with another name: Invalid
define again: AlreadyExists
create: {"generation":1,"labels":{"name":"a"},"spec":{"limit":1},"status":null,"version":"example.com/v1"}
create again: AlreadyExists
update the status: {"generation":1,"labels":{"name":"a"},"spec":{"limit":1},"status":{"seen":true},"version":"example.com/v1"}
update a stale one: Conflict
update: {"generation":2,"labels":{"name":"a"},"spec":{"any":["x"],"limit":2},"status":{"seen":true},"version":"example.com/v1"}
merge: {"generation":3,"labels":{"name":"a"},"spec":{"limit":3},"status":{"seen":true},"version":"example.com/v1"}
merge by the keys of lists: UnsupportedMediaType
get in the other version: {"generation":3,"labels":{"name":"a"},"spec":{"limit":3},"status":{"seen":true},"version":"example.com/v1alpha1"}
get in a version that is not served: NotFound
list by a label: 1 of RuleList, <nil>
metadata: a map[name:a]
metadata: b map[name:b]
watch of metadata: ADDED *v1.PartialObjectMetadata
watch of metadata: ADDED *v1.PartialObjectMetadata
watch: ADDED a: {"generation":1,"labels":{"name":"a"},"spec":{"limit":1},"status":null,"version":"example.com/v1"}
watch: MODIFIED a: {"generation":1,"labels":{"name":"a"},"spec":{"limit":1},"status":{"seen":true},"version":"example.com/v1"}
watch: MODIFIED a: {"generation":2,"labels":{"name":"a"},"spec":{"any":["x"],"limit":2},"status":{"seen":true},"version":"example.com/v1"}
watch: MODIFIED a: {"generation":3,"labels":{"name":"a"},"spec":{"limit":3},"status":{"seen":true},"version":"example.com/v1"}
watch: ADDED b: {"generation":1,"labels":{"name":"b"},"spec":{"limit":1},"status":null,"version":"example.com/v1"}
watch: DELETED b: {"generation":1,"labels":{"name":"b"},"spec":{"limit":1},"status":null,"version":"example.com/v1"}
discovery: rules Rule true [create delete deletecollection get list patch update watch]
discovery: rules/status Rule true [get patch update]
watch: DELETED of what was left
`), "\n")
	if diff := cmp.Diff(want, customResources(t, start(t, nil).config())); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// A definition may not take the place of a resource of the server's own, and a changed one ends the watches of its objects.
func TestChangedDefinitions(t *testing.T) {
	l := start(t, nil)
	client, err := dynamic.NewForConfig(l.config())
	if err != nil {
		t.Fatal(err)
	}
	taken := ruleDefinition()
	taken.SetName("deployments.apps")
	if err := unstructured.SetNestedField(taken.Object, "apps", "spec", "group"); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(taken.Object, "deployments", "spec", "names", "plural"); err != nil {
		t.Fatal(err)
	}
	all, some := client.Resource(definitions), client.Resource(rules).Namespace("default")
	if _, err := all.Create(t.Context(), taken, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a definition of deployments.apps gave %v", err)
	}
	defined, err := all.Create(t.Context(), ruleDefinition(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := some.Create(t.Context(), rule("a", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := some.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-watch.ResultChan(); e.Type != apiwatch.Added {
		t.Errorf("the watch began with %s", e.Type)
	}
	versions, _, _ := unstructured.NestedSlice(defined.Object, "spec", "versions")
	if err := unstructured.SetNestedSlice(defined.Object, versions[1:], "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Update(t.Context(), defined, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e, open := <-watch.ResultChan(); open {
		t.Errorf("the watch goes on with %s", e.Type)
	}
	if found, err := some.List(t.Context(), metav1.ListOptions{}); err != nil || len(found.Items) != 1 {
		t.Errorf("%v, after the change %v is left", err, found)
	}
	if _, err := client.Resource(rules.GroupResource().WithVersion("v1alpha1")).Namespace("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the version without a definition gave %v", err)
	}
}
