package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// restarting is a proxy on each node that can be stopped and frozen.
type restarting struct {
	changing
	noEffect bool // it continues to run when it is stopped
}

func (r *restarting) Kill(_ context.Context, node string) error {
	r.note(node, "kill")
	return nil
}

func (r *restarting) Freeze(node string) error {
	r.note(node, "freeze")
	return nil
}

func (r *restarting) Thaw(node string) error {
	r.note(node, "thaw")
	return nil
}

func (r *restarting) Frozen(string) (bool, error) { return !r.noEffect, nil }

func runRestart(t *testing.T, proxies *restarting, set map[string]string) error {
	t.Helper()
	s, err := Find("restart", labOffers)
	if err != nil {
		t.Fatal(err)
	}
	params, err := s.Fill(set)
	if err != nil {
		t.Fatal(err)
	}
	proxies.runs = map[string]string{"node-1": "proxy", "node-2": "proxy"}
	return s.Run(t.Context(), &World{Nodes: []string{"node-1", "node-2"}, Site: siteOf(proxies, nil), Recorder: &fakeRecord{}, Clock: &fakeClock{}, Params: params})
}

func TestRestartGoesOverOneEachOrAllNodes(t *testing.T) {
	for set, want := range map[string][]string{
		"which=each signal=TERM": {"node-1 stop", "node-1 start proxy", "node-2 stop", "node-2 start proxy"},
		"which=one signal=KILL":  {"node-1 kill", "node-1 start proxy"},
		"which=all signal=KILL":  {"node-1 kill", "node-2 kill", "node-1 start proxy", "node-2 start proxy"},
		"which=all signal=STOP":  {"node-1 freeze", "node-2 freeze", "node-1 thaw", "node-2 thaw"},
	} {
		p, given := &restarting{}, map[string]string{}
		for pair := range strings.FieldsSeq(set) {
			key, value, _ := strings.Cut(pair, "=")
			given[key] = value
		}
		if err := runRestart(t, p, given); err != nil || !slices.Equal(p.done, want) {
			t.Errorf("%s did %q, want %q (%v)", set, p.done, want, err)
		}
	}
}

// A step without effect on the proxy is an error.
func TestRestartWithoutEffectIsAnError(t *testing.T) {
	for want, p := range map[string]*restarting{
		"was not restarted":         {changing: changing{stuck: true}},
		"instead of standing still": {noEffect: true},
	} {
		signal := "TERM"
		if p.noEffect {
			signal = "STOP"
		}
		if err := runRestart(t, p, map[string]string{"signal": signal}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the step gave %v, want %q", err, want)
		}
	}
}
