// Package soak has the manifests of scheduled runs, and checks that their rights are those that runs need.
package soak

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/cluster"
)

// verbs returns the verbs that a role allows.
func verbs(t *testing.T, text []byte) []string {
	t.Helper()
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(text, &role); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, rule := range role.Rules {
		if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
			t.Errorf("a rule that this test does not know: %+v", rule)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					name, sub, _ := strings.Cut(resource, "/")
					all = append(all, cluster.Verb{Verb: verb, Group: group, Resource: name, Subresource: sub}.String())
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// document returns the object of that kind in a manifest.
func document(t *testing.T, file, kind string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var is metav1.TypeMeta
		if err := yaml.Unmarshal(document, &is); err != nil {
			t.Fatal(err)
		}
		if is.Kind == kind {
			return document
		}
	}
	t.Fatalf("%s has no %s", file, kind)
	return nil
}

// documented returns the role of docs/clusters.md; a test of internal/run compares it with the needs of runs.
func documented(t *testing.T) []byte {
	t.Helper()
	page, err := os.ReadFile("../../docs/clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\napiVersion: rbac.authorization.k8s.io/v1\n")
	text, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/clusters.md has no role")
	}
	return []byte("apiVersion: rbac.authorization.k8s.io/v1\n" + text)
}

// The manifest allows exactly the verbs that every run checks before it begins. The documented role has all of them.
func TestRoleHasRightsOfEveryRun(t *testing.T) {
	has, all := verbs(t, document(t, "rbac.yaml", "ClusterRole")), verbs(t, documented(t))
	var want []string
	for _, v := range append(cluster.Needs(), cluster.NeedsRecovery()...) {
		want = append(want, v.String())
	}
	slices.Sort(want)
	if !slices.Equal(has, want) {
		t.Errorf("the manifest allows  %s\nevery run needs      %s", strings.Join(has, ", "), strings.Join(want, ", "))
	}
	for _, verb := range has {
		if !slices.Contains(all, verb) {
			t.Errorf("docs/clusters.md does not have %s", verb)
		}
	}
}

// The role is bound only to the service account of the runs, in their namespace.
func TestRoleIsBoundToRuns(t *testing.T) {
	var binding rbacv1.ClusterRoleBinding
	var account corev1.ServiceAccount
	for kind, into := range map[string]any{"ClusterRoleBinding": &binding, "ServiceAccount": &account} {
		if err := yaml.UnmarshalStrict(document(t, "rbac.yaml", kind), into); err != nil {
			t.Fatal(err)
		}
	}
	if s := binding.Subjects; len(s) != 1 || s[0].Kind != "ServiceAccount" || s[0].Name != account.Name || s[0].Namespace != account.Namespace || binding.RoleRef.Name != "hitless" {
		t.Errorf("%+v", binding)
	}
}

// The namespace of the runs' pods must not have the label by which `hitless clean` deletes namespaces.
func TestCleanSparesTheNamespaceOfTheSchedule(t *testing.T) {
	var ns corev1.Namespace
	if err := yaml.UnmarshalStrict(document(t, "namespace.yaml", "Namespace"), &ns); err != nil {
		t.Fatal(err)
	}
	if ns.Labels[cluster.ManagedBy] == cluster.Managed {
		t.Errorf("the namespace has the label %s=%s", cluster.ManagedBy, cluster.Managed)
	}
}
