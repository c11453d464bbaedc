package run_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/cluster"
)

// The role in the documentation has just what a run asks for, and what `hitless clean` needs.
func TestTheDocumentedRoleIsWhatARunNeeds(t *testing.T) {
	page, err := os.ReadFile("../../docs/clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, found := strings.Cut(rest, "```")
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil || !found {
		t.Fatalf("the role of docs/clusters.md: %v", err)
	}
	var has []string
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				name := verb + " " + resource
				if group := rule.APIGroups[0]; group != "" {
					name += "." + group
				}
				has = append(has, name)
			}
		}
	}
	want := []string{"list namespaces"}
	for _, v := range append(cluster.Needs(), cluster.NeedsGates()) {
		want = append(want, v.String())
	}
	slices.Sort(has)
	slices.Sort(want)
	if !slices.Equal(has, want) {
		t.Errorf("the role has  %s\na run needs   %s", strings.Join(has, ", "), strings.Join(want, ", "))
	}
}
