package scenarios

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// changing has a proxy on each node, and stores the actions on them.
type changing struct {
	Proxies
	runs  map[string]string
	pid   int
	stuck bool // Start returns the old process
	ended error
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

func (c *changing) Exited() error { return c.ended }

// Before the scenario a wait ends at once when a proxy has ended by itself; the scenario ends proxies and waits all the same.
func TestAWaitEndsWithTheProxy(t *testing.T) {
	ended := errors.New("bundled on node-1 has exited by itself (exit status 3); its last log line is: no such flag")
	for began, want := range map[time.Duration]string{0: "waiting for a pod: bundled on node-1 has exited by itself (exit status 3)", time.Second: "waited 2m0s"} {
		clock := &fakeClock{}
		w := &World{Site: siteOf(&changing{ended: ended}, nil), Clock: clock, run: runState{began: began}}
		err := w.Until(t.Context(), "a pod", 2*time.Minute, func(context.Context) (bool, string, error) { return false, "none", nil })
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("scenario began at %s: %v, want %q", began, err, want)
		}
		if waited := clock.Now(); began == 0 && waited > time.Second {
			t.Errorf("waited %s for a proxy that has ended", waited)
		}
	}
}
