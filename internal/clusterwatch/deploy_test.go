package clusterwatch

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/cluster"
	"github.com/hitless/hitless/internal/testfiles"
)

const shipped = "../../deploy/watch"

// roles returns the verbs of the shipped roles, as in RBAC.
func roles(t *testing.T) (all []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(shipped, "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := yaml.UnmarshalStrict(document, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all = append(all, strings.TrimSuffix(verb+" "+resource+"."+group, "."))
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The shipped roles have exactly the verbs that a watch checks, and a watch asks for nothing else.
func TestRoleHasTheRightsOfAWatch(t *testing.T) {
	t.Parallel()
	var want []string
	for _, v := range append(cluster.NeedsWatch("", true), cluster.NeedsCauses("", "kube-system")...) {
		want = append(want, v.String())
	}
	slices.Sort(want)
	has := roles(t)
	if want = slices.Compact(want); !slices.Equal(has, want) {
		t.Errorf("the roles allow  %s\na watch checks   %s", strings.Join(has, ", "), strings.Join(want, ", "))
	}
	s := newStand(t)
	a := testfiles.Loopback(t)
	listen(t, a)
	s.service("web", nil, a)
	s.endpoint("web", true)
	s.proxySet()
	r := s.start(s.options())
	r.recorded("shop/web-pod")
	r.goesOn(40)
	r.report(analysis.Pass)
	s.mu.Lock()
	defer s.mu.Unlock()
	for verb := range s.asked {
		if !slices.Contains(has, verb) && verb != "" && verb != "create selfsubjectaccessreviews.authorization.k8s.io" {
			t.Errorf("the watch asked for %s, which the roles do not allow", verb)
		}
	}
	for _, verb := range []string{"watch services", "watch endpointslices.discovery.k8s.io", "watch pods", "watch events", "watch nodes", "get daemonsets.apps"} {
		if !s.asked[verb] {
			t.Errorf("the watch did not ask for %s", verb)
		}
	}
}

// queries returns the queries of the dashboard and the rules.
func queries(t *testing.T) (all []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Type, Query string }
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	data, err := os.ReadFile(filepath.Join(shipped, "dashboard.json"))
	if err == nil {
		err = json.Unmarshal(data, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(filepath.Join(shipped, "alerts.yaml")); err == nil {
		err = yaml.Unmarshal(data, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			all = append(all, v.Query)
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	return all
}

var (
	word    = regexp.MustCompile(`"[^"]*"|\$\w+|[a-zA-Z_:][a-zA-Z0-9_:]*`)
	grammar = strings.Fields("sum max by rate increase histogram_quantile absent label_values m s h")
)

// unknown returns the words of a query that are neither of the language nor exposed, and whether it names an exposed metric.
func unknown(query string, metrics, labels []string) (bad []string, names bool) {
	for _, w := range word.FindAllString(query, -1) {
		switch {
		case strings.HasPrefix(w, `"`), strings.HasPrefix(w, "$"), slices.Contains(grammar, w), slices.Contains(labels, w):
		case slices.Contains(metrics, w):
			names = true
		default:
			bad = append(bad, w)
		}
	}
	return bad, names
}

// Every query of the dashboard and the rules names metrics and labels that the exporter exposes.
func TestQueriesNameExposedMetrics(t *testing.T) {
	text := scraped(t)
	var metrics, labels []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		metrics = append(metrics, strings.TrimSpace(name))
		for _, m := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(rest, -1) {
			labels = append(labels, m[1])
		}
	}
	all := queries(t)
	if len(all) < 10 {
		t.Fatalf("%d queries", len(all))
	}
	for _, q := range all {
		if bad, names := unknown(q, metrics, labels); len(bad) > 0 || !names {
			t.Errorf("%s: nothing exposes %v", q, bad)
		}
		if bad, names := unknown(strings.ReplaceAll(q, "hitless_", "hitless_x_"), metrics, labels); len(bad) == 0 || names { // the red twin
			t.Errorf("%s: a wrong name is not found", q)
		}
	}
}
