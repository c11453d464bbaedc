package conformance

import (
	"slices"
	"testing"

	"github.com/hitless/hitless/internal/shard"
)

// The shards have every selected spec once, with any filter, and keep the specs of a run together.
func TestShardsMakeTheWhole(t *testing.T) {
	for _, filter := range []string{"", "core", "udp && !rollout"} {
		whole, _, err := Selection{Labels: filter}.Select(Catalog())
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 5; n++ {
			seen, home := map[string]int{}, map[*Run]int{}
			for i := 1; i <= n; i++ {
				part, count, err := Selection{Labels: filter, Shard: shard.Shard{Part: i, Of: n}}.Select(Catalog())
				if err != nil || count != len(whole) {
					t.Fatalf("%q, shard %d/%d: %d of %d specs: %v", filter, i, n, count, len(whole), err)
				}
				for _, s := range part {
					if seen[s.Name]++; home[s.Run] != 0 && home[s.Run] != i {
						t.Errorf("run %s is in the shards %d and %d of %d", s.Run.Name, home[s.Run], i, n)
					}
					home[s.Run] = i
				}
			}
			for _, s := range whole {
				if seen[s.Name] != 1 {
					t.Errorf("%q: %s is in %d of %d shards", filter, s.Name, seen[s.Name], n)
				}
			}
			if len(seen) != len(whole) {
				t.Errorf("%q: %d shards have %d specs, want %d", filter, n, len(seen), len(whole))
			}
		}
	}
}

func TestFiltersSelect(t *testing.T) {
	for _, test := range []struct {
		selection Selection
		has, not  string
	}{
		{Selection{Labels: "core && rollout"}, "rollout-local new", "rollout-local fresh"},
		{Selection{Labels: "CORE"}, "drain new", "drain-scaledown new"},
		{Selection{Labels: "/^policy/"}, "policy-ports new", "quiet new"},
		{Selection{Labels: "udp, flap"}, "flap open", "drain new"},
		{Selection{Labels: "!(nightly || udp)"}, "drain new", "drain-reboot new"},
		{Selection{Focus: []string{"^conformance a Service proxy drain", "flap"}}, "drain-local new", "scale-zero new"},
		{Selection{Labels: "needs-restartable-proxies"}, "restart-term new", "rollout-local new"},
		{Selection{Labels: "needs-lab"}, "ipv4 affinity", "restart-term new"},
		{Selection{Focus: []string{"KEP-1669"}, Skip: []string{"drain"}}, "rollout-local new", "drain-local new"},
	} {
		specs, _, err := test.selection.Select(Catalog())
		if err != nil {
			t.Errorf("%+v: %v", test.selection, err)
			continue
		}
		named := func(name string) bool { return slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == name }) }
		if !named(test.has) || named(test.not) {
			t.Errorf("%+v selects %s: %v, and %s: %v", test.selection, test.has, named(test.has), test.not, named(test.not))
		}
	}
}

func TestFiltersThatSelectNothingAreErrors(t *testing.T) {
	for _, s := range []Selection{
		{Labels: "smok"}, {Labels: "core && !smok"}, {Labels: "/smok/"}, {Labels: "core &&"}, {Labels: "core extended"}, {Labels: "(core"},
		{Labels: "core && extended"}, {Labels: "core: isSubsetOf {a}"},
		{Focus: []string{"resart"}}, {Focus: []string{"flap", "resart"}}, {Skip: []string{"resart"}}, {Focus: []string{"("}}, {Skip: []string{"."}}, {Skip: []string{"("}},
	} {
		if specs, _, err := s.Select(Catalog()); err == nil {
			t.Errorf("%+v selects %d specs", s, len(specs))
		}
	}
}
