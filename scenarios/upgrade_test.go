package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// changing has a proxy on each node, and stores the actions on them.
type changing struct {
	Proxies
	runs  map[string]string
	pid   int
	stuck bool // Start returns the old process
	done  []string
}

func (c *changing) note(node, what string) { c.done = append(c.done, node+" "+what) }

func (c *changing) Subject(node string) string { return c.runs[node] }
func (c *changing) Pid(string) (int, error)    { return c.pid, nil }
func (c *changing) Stop(_ context.Context, node string) error {
	c.note(node, "stop")
	return nil
}
func (c *changing) Kill(_ context.Context, node string) error {
	c.note(node, "kill")
	return nil
}
func (c *changing) Cleanup(_ context.Context, node string) error {
	c.note(node, "cleanup "+c.runs[node])
	return nil
}
func (c *changing) Change(node, subject string) error {
	c.runs[node] = subject
	return nil
}
func (c *changing) Start(_ context.Context, node string) error {
	c.note(node, "start "+c.runs[node])
	if !c.stuck {
		c.pid++
	}
	return nil
}

func runUpgrade(t *testing.T, proxies *changing, set map[string]string) error {
	t.Helper()
	s, err := Find("upgrade", labOffers)
	if err != nil {
		t.Fatal(err)
	}
	params, err := s.Fill(set)
	if err != nil {
		t.Fatal(err)
	}
	proxies.runs = map[string]string{"node-1": "old", "node-2": "old"}
	return s.Run(t.Context(), &World{Nodes: []string{"node-1", "node-2"}, Site: siteOf(proxies, nil), Recorder: &fakeRecord{}, Clock: &fakeClock{}, Params: params})
}

func TestUpgradeGoesNodeByNodeThereAndBack(t *testing.T) {
	p := &changing{}
	if err := runUpgrade(t, p, map[string]string{"to": "new", "back": "on", "cleanup": "on"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"node-1 stop", "node-1 cleanup old", "node-1 start new", "node-2 stop", "node-2 cleanup old", "node-2 start new",
		"node-1 stop", "node-1 cleanup new", "node-1 start old", "node-2 stop", "node-2 cleanup new", "node-2 start old"}
	if !slices.Equal(p.done, want) {
		t.Errorf("done was %q, want %q", p.done, want)
	}
}

func TestUpgradeToItselfStartsTheSameSubjectAgain(t *testing.T) {
	p := &changing{}
	if err := runUpgrade(t, p, map[string]string{"to": Itself}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"node-1 stop", "node-1 start old", "node-2 stop", "node-2 start old"}; !slices.Equal(p.done, want) {
		t.Errorf("done was %q, want %q", p.done, want)
	}
}

// An upgrade without effect is an error.
func TestUpgradeWithoutChangeIsAnError(t *testing.T) {
	err := runUpgrade(t, &changing{stuck: true}, map[string]string{"to": "new"})
	if err == nil || !strings.Contains(err.Error(), "nothing took its place") {
		t.Errorf("an upgrade that left the old process gave %v", err)
	}
}

// Scenario migrate has the order that upstream documents: cleanup first, and then back.
func TestMigrateIsAnUpgradeWithCleanupThereAndBack(t *testing.T) {
	s, err := Find("migrate", labOffers)
	if err != nil {
		t.Fatal(err)
	}
	params, err := s.Fill(map[string]string{"to": "new"})
	if err != nil {
		t.Fatal(err)
	}
	p := &changing{runs: map[string]string{"node-1": "old"}}
	w := &World{Nodes: []string{"node-1"}, Site: siteOf(p, nil), Recorder: &fakeRecord{}, Clock: &fakeClock{}, Params: params}
	if err := s.Run(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	want := []string{"node-1 stop", "node-1 cleanup old", "node-1 start new", "node-1 stop", "node-1 cleanup new", "node-1 start old"}
	if !slices.Equal(p.done, want) {
		t.Errorf("done was %q, want %q", p.done, want)
	}
	if u, _ := Find("upgrade", labOffers); u.Parameters[slices.IndexFunc(u.Parameters, func(p Parameter) bool { return p.Key == "cleanup" })].Default != "off" {
		t.Error("the defaults of upgrade changed with those of migrate")
	}
}
