package chart

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record/recordtest"
)

// A name that is too long keeps its ends.
func TestLongNamesAreShortened(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"web over node-1", 26, "web over node-1"}, {"default/frontend:http over node-10", 26, "default/front…over node-10"}, {"äöüäöü", 5, "äö…öü"}, {"abc", 2, "a…"}, {"abc", 1, "…"}, {"", 5, ""}} {
		if got := Shortened(c.text, c.most); got != c.want || utf8.RuneCountInString(got) > c.most {
			t.Errorf("%q in %d letters is %q, want %q", c.text, c.most, got, c.want)
		}
	}
	if r := (Row{Name: "default/frontend:http over node-10", Detail: "client to [2001:db8:1234:5678::10]:8080"}); r.Label() == r.Name || r.Note() == r.Detail {
		t.Errorf("%q and %q do not fit", r.Label(), r.Note())
	}
}

// Rows tell that a path has no node only where another path to the same address has one.
func TestOnlyPathsBesideOthersHaveNoNode(t *testing.T) {
	names := func(nodes ...string) map[string]bool {
		s := recordtest.NewLab(1)
		s.Services[recordtest.WebAddress] = &recordtest.Service{Name: "default/web", Seed: 7}
		if len(nodes) > 0 {
			s.Balance(recordtest.WebAddress, 4*time.Second, nodes...)
		}
		s.Probe(recordtest.Lane{ID: 0, Name: "web", Target: recordtest.WebAddress, Rate: 10, From: 3 * time.Second, To: 6 * time.Second})
		a, err := analysis.New(s.Write(t))
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, row := range NewTimeline(a).Rows {
			if row.Kind == "path" {
				found[row.Name] = true
			}
		}
		return found
	}
	if alone := names(); len(alone) != 1 || !alone["web"] {
		t.Errorf("a watch without nodes has the rows %v", alone)
	}
	if both := names("node-1"); len(both) != 2 || !both["web over no node"] || !both["web over node-1"] {
		t.Errorf("before and after the balancer has a node there are the rows %v", both)
	}
}
