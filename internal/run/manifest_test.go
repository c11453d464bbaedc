package run_test

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/lab/replay/replaytest"
)

// shipped are the verbs of the role in deploy/soak, which the Helm chart has too.
func shipped(t *testing.T) (verbs []string) {
	t.Helper()
	data, err := os.ReadFile("../../deploy/soak/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "kind: ClusterRole\n")
	text, _, _ = strings.Cut(text, "\n---\n")
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal([]byte(text), &role); err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				verbs = append(verbs, cluster.Verb{Verb: verb, Group: rule.APIGroups[0], Resource: resource}.String())
			}
		}
	}
	return verbs
}

// All users may create access reviews, and the configuration of kube-proxy is optional.
var anybody = []string{"", "create selfsubjectaccessreviews.authorization.k8s.io"}

// The scheduled run completes with exactly the shipped rights, and uses all of them. The API server of this test forbids all others.
func TestShippedRoleIsUsedByScheduledRun(t *testing.T) {
	t.Parallel()
	may := shipped(t)
	if len(may) < 10 {
		t.Fatalf("the role has %q", may)
	}
	var seen asks
	forbid := refuse(apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("RBAC: no")),
		func(r *http.Request) bool {
			return !slices.Contains(anybody, replaytest.Verb(r)) && !slices.Contains(may, replaytest.Verb(r))
		})
	s := standing(t, func(next http.Handler) http.Handler { return seen.note(forbid(next)) })
	e := s.run(t.Context(), t, "rollout", nil)
	e.finished(t)
	if left := s.left(t); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, verb := range may {
		// Servers before 1.32 need a list before a watch; newer ones send it with the watch.
		if !seen.seen[verb] && verb != "list endpointslices.discovery.k8s.io" {
			t.Errorf("the run does not use the right to %s", verb)
		}
	}
	delete(seen.seen, "get configmaps") // refused, and done without
	for verb := range seen.seen {
		if !slices.Contains(may, verb) && !slices.Contains(anybody, verb) {
			t.Errorf("the run needs the right to %s, which the role lacks", verb)
		}
	}
}
