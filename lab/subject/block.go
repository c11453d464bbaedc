//go:build linux

package subject

import (
	"fmt"
	"os"
	"strings"

	"github.com/hitless/hitless/lab/subject/failing"
	"github.com/hitless/hitless/lab/topology"
)

// tools is the toolbox of each node. /run is each node's own.
const tools toolbox = "/run/hitless-tools"

// makeTools gives a node the tools that its proxy finds first.
func makeTools(node *topology.Node) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := node.Inside(func() error { return tools.make(program) }); err != nil {
		return fmt.Errorf("making the tools of the proxy: %w", err)
	}
	return nil
}

// toolsEnv is the environment by which a proxy finds the node's tools first; empty for a subject that cannot be blocked.
func toolsEnv(s Spec) []string {
	if s.CheckTools() != nil {
		return nil
	}
	return []string{"PATH=" + tools.path() + ":" + os.Getenv("PATH")}
}

// Block makes each program fail with which the node's proxy writes its rules, until Unblock. The error for a subject without such
// programs is permanent.
func (f *Fleet) Block(name string) error {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return err
	}
	if err := f.spec(name).CheckTools(); err != nil {
		return err
	}
	if _, err := f.process(name); err != nil {
		return err
	}
	f.mu.Lock()
	f.blocked[name] = true
	f.mu.Unlock()
	if err := node.Inside(func() error { return tools.change(failingTools) }); err != nil {
		return err
	}
	f.record(name, "blocked", "each program fails from now on with which "+f.spec(name).String()+" writes the rules of "+name)
	return nil
}

// Unblock lets the programs work again, and returns how many calls have failed.
func (f *Fleet) Unblock(name string) (failed int, err error) {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return 0, err
	}
	var calls []string
	err = node.Inside(func() (err error) {
		if err = tools.change(workingTools); err != nil {
			return err
		}
		calls, err = failing.Calls(string(tools))
		return err
	})
	if err != nil {
		return 0, err
	}
	f.record(name, "unblocked", fmt.Sprintf("the programs work again with which %s writes the rules of %s; %s", f.spec(name), name, callsText(calls)))
	return len(calls), nil
}

// callsText tells the number of failed calls, and the first of them, shortened.
func callsText(calls []string) string {
	if len(calls) == 0 {
		return "no call has failed"
	}
	const most = 80
	first := strings.TrimSpace(calls[0])
	if len(first) > most {
		first = strings.ToValidUTF8(first[:most], "") + "…"
	}
	return fmt.Sprintf("%d calls have failed, the first was `%s`", len(calls), first)
}

// wasBlocked reports whether the proxy of a node was blocked: its log then has failed syncs that a step has caused.
func (f *Fleet) wasBlocked(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blocked[node]
}
