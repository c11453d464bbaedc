//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios"
)

// ruleset plays nft on a node, as far as the scenario goes.
type ruleset struct {
	powered
	rules []string // of the foreign table: verdict and comment
	own   int      // rules of the proxy
	table int      // handle of its table
	wall  int      // handle of the firewall's; 0 for none
	quick bool     // the proxy has its rules back before anybody looks
	blind bool     // no packet meets a foreign rule
	deaf  bool     // a flush takes nothing away
	odd   bool     // nft lists rules in an unknown form

	changes []string // commands that changed rules

	// removes is what the proxy removes when the foreign table has as many rules as after: "table" or "rules"; empty for nothing.
	removes string
	after   int
	foreign bool // the foreign table exists
}

func (r *ruleset) Command(_ context.Context, _ string, words ...string) (string, error) {
	if len(r.rules) == r.after && r.removes != "" && strings.HasPrefix(strings.Join(words[1:], " "), "-a list") {
		r.rules, r.foreign = nil, r.removes == "rules"
	}
	if what := strings.Join(words[1:], " "); !strings.HasPrefix(what, "-a list") {
		r.changes = append(r.changes, what)
	}
	switch what := strings.Join(words[1:], " "); {
	case what == "-a list ruleset":
		text := fmt.Sprintf("table ip proxy { # handle %d\n", r.table) + strings.Repeat("\t\tcounter # handle 7\n", r.own) + "}\n"
		if r.wall > 0 {
			text += fmt.Sprintf("table inet host-firewall { # handle %d\n}\n", r.wall)
		}
		if r.foreign {
			text += "table inet stale-policy { # handle 99\n}\n"
		}
		return text, nil
	case strings.HasPrefix(what, "flush ruleset"):
		if r.deaf {
			break
		}
		if r.table += 2; !r.quick {
			r.own = 0
		}
		if r.wall = 0; strings.Contains(what, "add table inet host-firewall") {
			r.wall = r.table + 1
		}
	case strings.HasPrefix(what, "add table inet host-firewall"):
		r.wall = r.table + 1
	case what == "delete table inet host-firewall":
		r.wall = 0
	case strings.HasPrefix(what, "-a list table") && !r.foreign:
		return "", errors.New("no such table")
	case strings.HasPrefix(what, "-a list table"):
		if r.odd {
			return strings.ReplaceAll(r.listing(), "bytes", "octets"), nil
		}
		return r.listing(), nil
	case strings.HasPrefix(what, "delete rule"):
		r.rules = r.rules[1:]
	case strings.Contains(what, "delete table"):
		r.rules, r.foreign = nil, false
	case strings.HasPrefix(what, "add table inet stale-policy"):
		r.foreign = true
		for _, rule := range strings.Split(what, "; add rule ")[1:] {
			_, verdict, _ := strings.Cut(rule, " counter ")
			r.rules = append(r.rules, verdict)
		}
	}
	return "", nil
}

// listing has the packets at the first rule, as a verdict leaves none for the next.
func (r *ruleset) listing() (text string) {
	for i, rule := range r.rules {
		packets := 0
		if i == 0 && !r.blind {
			packets = 5
		}
		text += fmt.Sprintf("\t\tip daddr 10.244.1.2 counter packets %d bytes 300 %s # handle %d\n", packets, rule, i+2)
	}
	return text
}

func runInterference(t *testing.T, r *ruleset, what string) ([]record.Event, error) {
	t.Helper()
	s := newStage(t, "interference", map[string]string{"what": what, "replicas": "2"})
	s.world.Site.OfferCommands(r)
	scenario := find(t, "interference")
	err := scenarios.Run(t.Context(), scenario, &s.world)
	var foreign []record.Event
	for _, e := range s.events {
		if e.Kind() == record.KindInterference {
			foreign = append(foreign, e)
		}
	}
	return foreign, err
}

// The record names the foreign rule, from when it disturbs until it is gone.
func TestInterferenceNamesWhatMeddled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, want := range map[string]string{
			"flush":       "`nft flush ruleset` took the 3 rules of node-1 away",
			"reload":      "the reload of the firewall `table inet host-firewall` took the 3 rules of node-1 away",
			"stale-drop":  "the foreign rule `table inet stale-policy { ip daddr { 10.244.1.",
			"stale-allow": "the stale allow `table inet stale-policy { ip daddr { 10.244.1.",
		} {
			r := &ruleset{own: 3}
			events, err := runInterference(t, r, what)
			if err != nil || len(events) == 0 || !strings.HasPrefix(events[0].Body.(record.Interference).What, want) || events[0].Node != "node-1" {
				t.Errorf("%s: %+v, %v; want %q", what, events, err, want)
			}
			if len(r.rules) > 0 || r.wall > 0 {
				t.Errorf("%s left %q and the firewall %d", what, r.rules, r.wall)
			}
		}
	})
}

// A proxy that removes another program's table or rules is no defect of the measurement: the record tells it, and nothing is left.
func TestAProxyThatRemovesForeignRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, removes := range []string{"table", "rules"} {
			for what, after := range map[string][]int{"stale-drop": {1}, "stale-allow": {2, 1}} {
				for _, rules := range after {
					r := &ruleset{own: 3, removes: removes, after: rules}
					events, err := runInterference(t, r, what)
					told := slices.ContainsFunc(events, func(e record.Event) bool {
						return e.Node == "node-1" && e.Body.(record.Interference).State == record.InterferenceRemoved
					})
					if err != nil || !told || r.foreign || len(r.rules) > 0 {
						t.Errorf("%s, %s of %d rules: told %v, %v, left %v %q", what, removes, rules, told, err, r.foreign, r.rules)
					}
				}
			}
		}
		events, _ := runInterference(t, &ruleset{own: 3}, "stale-allow")
		if slices.ContainsFunc(events, func(e record.Event) bool { return e.Body.(record.Interference).State == record.InterferenceRemoved }) {
			t.Errorf("a proxy that removes nothing is told: %+v", events)
		}
	})
}

// A proxy that repairs a flush before anybody looks was disturbed all the same.
func TestFlushThatIsRepairedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, what := range []string{"flush", "reload"} {
			events, err := runInterference(t, &ruleset{own: 3, quick: true}, what)
			if err != nil || len(events) != 2 || events[1].Text != "node-1 has 3 rules again" {
				t.Errorf("%s: %+v, %v", what, events, err)
			}
		}
	})
}

// besides is a fleet in which a second proxy writes rules, or ends.
type besides struct {
	idle
	rules *ruleset
	adds  int
	ends  error
}

func (b *besides) Subject(string) string { return "bundled" }
func (b *besides) StartSecond(string, string) (func() error, error) {
	b.rules.own += b.adds
	return func() error { return b.ends }, nil
}

func TestASecondProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			adds int
			ends error
			want string
		}{
			"left running": {adds: 5},
			"ends":         {adds: 5, ends: errors.New("address in use"), want: "address in use"},
			"does nothing": {want: "3 rules, as before 3"},
		} {
			s := newStage(t, "interference", map[string]string{"what": "second", "to": "kube-proxy@v1.37.1/iptables", "replicas": "2", "lasts": "1s"})
			r := &ruleset{own: 3}
			s.world.Site.OfferCommands(r).OfferProxies(&besides{rules: r, adds: c.adds, ends: c.ends})
			scenario := find(t, "interference")
			err := scenarios.Run(t.Context(), scenario, &s.world)
			told := slices.ContainsFunc(s.events, func(e record.Event) bool {
				return e.Kind() == record.KindInterference && e.Text == "kube-proxy@v1.37.1/iptables was left running on node-1 beside bundled"
			})
			if c.want == "" && (err != nil || !told) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, told: %v; want %q", name, err, told, c.want)
			}
		}
	})
}

// blockable is a fleet whose proxies can be blocked.
type blockable struct {
	idle
	failed int // calls while the programs fail
	steps  []string
}

func (b *blockable) Block(node string) error {
	b.steps = append(b.steps, "block "+node)
	return nil
}

func (b *blockable) FailedCalls(string) (int, error) { return b.failed, nil }

func (b *blockable) Unblock(node string) error {
	b.steps = append(b.steps, "unblock "+node)
	return nil
}

// newBlockStage is a stage for programs that fail, on nodes with a pod each.
func newBlockStage(t *testing.T, b *blockable, policy string) *stage {
	t.Helper()
	s := newStage(t, "interference", map[string]string{"what": "programs", "replicas": "2", "lasts": "6s", "shutdownDelay": "3s", "trafficPolicy": policy})
	s.world.Site.OfferProxies(b)
	return s
}

// The programs of a node's proxy fail until its pod has ended and for the given time after that. The record tells both.
func TestProgramsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blockable{failed: 2}
		s := newBlockStage(t, b, "Cluster")
		if err := s.play(t, "interference"); err != nil || !slices.Equal(b.steps, []string{"block node-1", "unblock node-1"}) {
			t.Fatalf("%q, %v", b.steps, err)
		}
		var told []record.Event
		for _, e := range s.events {
			if e.Kind() == record.KindInterference {
				told = append(told, e)
			}
		}
		if len(told) != 2 || told[0].Text != "the programs that the proxy of node-1 writes its rules with failed" || told[1].At < told[0].At+6*time.Second {
			t.Errorf("told: %+v", told)
		}
		err := newBlockStage(t, &blockable{}, "Cluster").play(t, "interference")
		if err == nil || !strings.Contains(err.Error(), "called none of its programs to write while it was blocked, so no sync failed") {
			t.Errorf("a block without a failed call gave the error %v", err)
		}
	})
}

func isRemoval(e record.Event) bool {
	b, is := e.Body.(record.Interference)
	return is && b.State == record.InterferenceRemoved
}

// What met no packet, hid nothing or took nothing away is never a green run.
func TestInterferenceThatDidNotHappenIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			rules *ruleset
			want  string
		}{
			"flush":       {&ruleset{own: 3, deaf: true}, "nothing was flushed"},
			"reload":      {&ruleset{own: 3, deaf: true}, "nothing was flushed"},
			"stale-drop":  {&ruleset{blind: true}, "met no packet"},
			"stale-allow": {&ruleset{blind: true}, "it hid nothing"},
		} {
			if _, err := runInterference(t, c.rules, what); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s gave %v, want %q", what, err, c.want)
			}
		}
		for _, what := range []string{"stale-drop", "stale-allow"} { // a rule that cannot be read is not one that the proxy removed
			if events, err := runInterference(t, &ruleset{odd: true}, what); err == nil || slices.ContainsFunc(events, isRemoval) {
				t.Errorf("%s with an unknown listing gave %+v, %v", what, events, err)
			}
		}
		if _, err := runInterference(t, &ruleset{}, "flush"); err == nil || !strings.Contains(err.Error(), "nothing to flush") {
			t.Errorf("a node without rules gave %v", err)
		}
	})
}
