package run_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/site"
	"github.com/hitless/hitless/scenarios"
)

// needsOf returns the verbs that a scenario needs in addition to those of every run.
func needsOf(s scenarios.Scenario) (verbs []string) {
	for _, n := range s.Access(s.Defaults()) {
		verbs = append(verbs, cluster.Verb{Verb: n.Verb, Group: n.Group, Resource: n.Resource, Subresource: n.Subresource}.String())
	}
	return verbs
}

// The role in the documentation has exactly the rights of a run and of `hitless clean`.
func TestDocumentedRoleHasRightsOfRun(t *testing.T) {
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
	want := []string{"list namespaces", "list daemonsets.apps", "patch nodes", "patch daemonsets.apps"} // of clean
	for _, v := range slices.Concat(cluster.Needs(), cluster.NeedsRecovery(), cluster.NeedsFleet(true)) {
		want = append(want, v.String())
	}
	for _, s := range scenarios.All() {
		if len(s.Lacks(site.LiveOffers)) == 0 {
			want = append(want, needsOf(s)...)
		}
	}
	slices.Sort(has)
	slices.Sort(want)
	want = slices.Compact(want)
	if !slices.Equal(has, want) {
		t.Errorf("the role has  %s\na run needs   %s", strings.Join(has, ", "), strings.Join(want, ", "))
	}
}
