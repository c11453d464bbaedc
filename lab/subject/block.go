//go:build linux

package subject

import (
	"fmt"
	"os"
	"strings"

	"github.com/hitless/hitless/lab/subject/failing"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// programs are the proxy's programs of each node. /run is each node's own.
const programs programSets = "/run/hitless-programs"

// makePrograms gives a node the programs that its proxy finds first.
func makePrograms(node *topology.Node) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := node.Inside(func() error { return programs.make(self) }); err != nil {
		return fmt.Errorf("making the proxy's programs: %w", err)
	}
	return nil
}

// programsEnv is the environment by which a proxy finds the node's programs first; empty for a subject that cannot be blocked.
func programsEnv(s Spec) []string {
	if s.CheckBlock() != nil {
		return nil
	}
	return []string{"PATH=" + programs.path() + ":" + os.Getenv("PATH")}
}

// Block makes the programs that the node's proxy writes its rules with fail, until Unblock. The error for a subject without such programs
// is permanent.
func (f *Fleet) Block(name string) error {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return err
	}
	if err := f.spec(name).CheckBlock(); err != nil {
		return err
	}
	if _, err := f.process(name); err != nil {
		return err
	}
	err = node.Inside(func() error {
		if err := programs.change(failingSet); err != nil {
			return err
		}
		return failing.Forget(string(programs))
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.blocked[name] = true
	f.mu.Unlock()
	f.record(name, record.ProxyBlocked, fmt.Sprintf("from now on the programs that %s writes the rules of %s with fail", f.spec(name), name))
	return nil
}

// FailedCalls is the number of calls that would have written rules, and have failed since Block, also after Unblock.
func (f *Fleet) FailedCalls(name string) (int, error) {
	calls, err := f.failedCalls(name)
	return len(calls), err
}

func (f *Fleet) failedCalls(name string) (calls []string, err error) {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return nil, err
	}
	err = node.Inside(func() (err error) {
		calls, err = failing.Calls(string(programs))
		return err
	})
	return calls, err
}

// Unblock lets the programs work again.
func (f *Fleet) Unblock(name string) error {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return err
	}
	if err := node.Inside(func() error { return programs.change(workingSet) }); err != nil {
		return err
	}
	calls, err := f.failedCalls(name)
	if err != nil {
		return err
	}
	f.record(name, record.ProxyUnblocked, fmt.Sprintf("the programs that %s writes the rules of %s with work again; %s", f.spec(name), name, callsText(calls)))
	return nil
}

// callsText tells the number of failed calls, and the first of them, shortened.
func callsText(calls []string) string {
	if len(calls) == 0 {
		return "no call that writes has failed"
	}
	const most = 80
	first := strings.TrimSpace(calls[0])
	if len(first) > most {
		first = strings.ToValidUTF8(first[:most], "") + "…"
	}
	return fmt.Sprintf("%d calls that write have failed, the first was `%s`", len(calls), first)
}

// wasBlocked reports whether the proxy of a node was blocked since its last start: the run itself made its syncs fail.
func (f *Fleet) wasBlocked(node string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blocked[node]
}

// passBlock makes the next start of a node's proxy answer for its syncs again. Failed syncs that its log has of a block stay the run's own.
func (f *Fleet) passBlock(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.blocked[node] {
		return
	}
	delete(f.blocked, node)
	if log, err := os.Stat(f.cfg.Procs.LogFile(logName(node))); err == nil {
		f.unjudged[node] = log.Size()
	}
}

// judgedFrom is the length of a node's log from which on its proxy answers for failed syncs.
func (f *Fleet) judgedFrom(node string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unjudged[node]
}
