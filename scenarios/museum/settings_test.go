package museum

import (
	"slices"
	"strings"
	"testing"
)

// A run with another value of a parameter that is not free, or with other nodes than the entry's or its timeline's, tells nothing.
func TestOtherSettingsTellNothing(t *testing.T) {
	for _, c := range []struct{ id, key, value string }{
		{"k8s-116470", "leave", "0s"}, {"k8s-50977", "checkFall", "100"}, {"k8s-50977", "checkInterval", "1m"}, {"k8s-105657", "shutdownDelay", "1m"},
		{"k8s-59368", "target", "nodePort"}, {"k8s-73154", "downtime", "0s"}, {"k8s-75290", "family", "ipv6"}, {"k8s-75290", "direct", "on"}, {"k8s-71596", "others", "5000"},
		{"k8s-105657", "gracePeriod", "1s"},
	} {
		e, s := simulated(t, c.id)
		f := e.Judge(with(s, c.key, c.value).record(t))
		if text := strings.Join(f.Reasons, "\n"); f.Answer != CannotTell || !strings.Contains(text, "needs "+c.key+"=") {
			t.Errorf("%s with %s=%s: %s: %s", c.id, c.key, c.value, f.Answer, text)
		}
	}
	for _, c := range []struct {
		id     string
		nodes  int
		refuse bool
	}{{"k8s-103857", 2, false}, {"k8s-103857", 3, true}, {"k8s-117205", 1, false}, {"k8s-117205", 3, true}} {
		e, s := simulated(t, c.id)
		s.nodes = make([]string, c.nodes)
		if text := strings.Join(e.Judge(s.record(t)).Reasons, "\n"); strings.Contains(text, "the run has 3 nodes") != c.refuse {
			t.Errorf("%s with %d nodes: %s", e.ID, c.nodes, text)
		}
	}
}

// An entry fixes no parameter that its scenario does not have, and no specimen changes one that the entry fixes.
func TestSettingsExist(t *testing.T) {
	for _, e := range All() {
		var keys []string
		for _, p := range e.parameters() {
			keys = append(keys, p.Key)
		}
		for key := range e.Needs() {
			if !slices.Contains(keys, key) {
				t.Errorf("%s needs %s, which the scenario %s does not have", e.ID, key, e.Scenario)
			}
		}
		for _, key := range e.Free {
			if _, set := e.Set[key]; set || !slices.Contains(keys, key) {
				t.Errorf("%s leaves %s to the call, and sets it or does not have it", e.ID, key)
			}
		}
	}
}
