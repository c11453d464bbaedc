//go:build netns

package subject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// script is a proxy that logs its arguments, its environment and the signal that stops it.
const script = `#!/bin/sh
dir=$1
case $2 in
ready) [ -e $dir/started ]; exit;;
cleanup) echo "cleaned $3" >> $dir/log; exit $CLEANUP_STATUS;;
esac
echo "on $2, pods $3, $SERVER, fallback $FALLBACK" >> $dir/log
trap 'echo INT >> $dir/log; exit' INT
touch $dir/started
while :; do sleep 0.1; done
`

type quietRecorder struct{}

func (quietRecorder) Event(record.Event)     {}
func (quietRecorder) Attempt(record.Attempt) {}

// network is shared by all tests: its bridge stays in the namespace of the test.
var network = sync.OnceValues(func() (*topology.Network, error) { return topology.New(1) })

// fleetOf is a fleet of one node that runs the script, with a changed description.
func fleetOf(t *testing.T, change func(*Exec)) (*Fleet, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"proxy": script, "kubeconfig": `{"apiVersion":"v1","kind":"Config","current-context":"lab",
		"clusters":[{"name":"lab","cluster":{"server":"http://10.0.0.2:8001"}}],"users":[{"name":"lab","user":{}}],
		"contexts":[{"name":"lab","context":{"cluster":"lab","user":"lab"}}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e := Exec{Name: "script", Program: filepath.Join(dir, "proxy"), Args: []string{dir, "{node}", "{podCIDR}"},
		Env:     []string{"SERVER={server}", "FALLBACK={terminatingFallback}", "CLEANUP_STATUS=0"},
		Ready:   Ready{Command: []string{"{program}", dir, "ready"}},
		Stop:    Stop{"INT", 10 * time.Second},
		Cleanup: []string{"{program}", dir, "cleanup", "{nodeIP}"}}
	change(&e)
	net, err := network()
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := procs.New(filepath.Join(dir, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { supervisor.StopAll(time.Second) })
	begin := time.Now()
	f, err := NewFleet(Config{Programs: []Program{{Spec: FromExec(e), Fallback: "off"}}, Net: net, Procs: supervisor, Kubeconfig: filepath.Join(dir, "kubeconfig"),
		Recorder: quietRecorder{}, Now: func() time.Duration { return time.Since(begin) }})
	if err != nil {
		t.Fatal(err)
	}
	return f, filepath.Join(dir, "log")
}

func TestExecLifecycle(t *testing.T) {
	f, log := fleetOf(t, func(*Exec) {})
	if err := f.StartAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Retire(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(log)
	want := "on node-1, pods 10.244.1.0/24, http://10.0.0.2:8001, fallback off\nINT\ncleaned 10.0.0.11\n"
	if err != nil || string(got) != want {
		t.Errorf("%v, the script wrote %q, want %q", err, got, want)
	}
}

// Errors quote the output of the program.
func TestExecThatFails(t *testing.T) {
	fails := func(e *Exec) { e.Program, e.Args = "/bin/sh", []string{"-c", "echo no licence; exit 7"} }
	f, _ := fleetOf(t, func(e *Exec) { fails(e); e.Ready = Ready{URL: "http://127.0.0.1:10256/healthz"} })
	if err := f.StartAll(t.Context()); err == nil || !strings.Contains(err.Error(), "no licence") {
		t.Errorf("a proxy that ends at once gave %v", err)
	}
	f, _ = fleetOf(t, func(e *Exec) { e.Env[2] = "CLEANUP_STATUS=4" })
	if err := f.StartAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Retire(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("a cleanup that fails gave %v", err)
	}
	f, log := fleetOf(t, func(e *Exec) {
		e.Ready = Ready{Command: []string{"/bin/sh", "-c", "echo asked >> " + e.Args[0] + "/log; exec sleep 60"}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := f.StartAll(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a ready command that hangs gave %v", err)
	}
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "asked\n") {
		t.Errorf("the ready command did not run: %q, %v", text, err)
	}
}

type listRecorder struct{ events []record.Event }

func (r *listRecorder) Event(e record.Event)   { r.events = append(r.events, e) }
func (r *listRecorder) Attempt(record.Attempt) {}

// has reports whether a state of a proxy was recorded, with these words.
func (r *listRecorder) has(state record.ProxyState, words string) bool {
	return slices.ContainsFunc(r.events, func(e record.Event) bool {
		return e.Body == record.Proxy{State: state} && strings.Contains(e.Text, words)
	})
}

// A failed cleanup of kube-proxy is recorded; a killed one, and a failed one of the bundled proxier, are errors.
func TestCleanupOfKubeProxyThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		spec, script string
		goesOn       bool
	}{
		"fails":       {"kube-proxy@v1.37.1/ipvs", "echo CHAIN_DEL failed; exit 1", true},
		"works":       {"kube-proxy@v1.37.1/ipvs", "exit 0", true},
		"killed":      {"kube-proxy@v1.37.1/ipvs", "kill -9 $$", false},
		"the bundled": {"bundled", "echo no kernel; exit 1", false},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := fleetOf(t, func(*Exec) {})
			recorded := &listRecorder{}
			f.cfg.Recorder = recorded
			program := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			spec, err := Parse(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			f.runs["node-1"] = Program{Spec: spec, Path: program, Fallback: "on"}
			if err := f.Cleanup(t.Context(), "node-1"); (err == nil) != c.goesOn {
				t.Errorf("it gave %v", err)
			}
			if recorded.has(record.ProxyUncleaned, "") != (name == "fails") || recorded.has(record.ProxyCleaned, "") != (name == "works") {
				t.Errorf("the record has %+v", recorded.events)
			}
			if name == "fails" && !recorded.has(record.ProxyUncleaned, "exit code 1; its last line: CHAIN_DEL failed") {
				t.Errorf("the record does not quote the cleanup: %+v", recorded.events)
			}
		})
	}
}

// A file's mounts are on the node before the proxy starts, keep their content over a restart, and are mounted again after a power cycle.
func TestMountsOfAFile(t *testing.T) {
	const note = `[ -e /run/proxy/state/seen ] && echo kept >> $1 || echo new >> $1; touch /run/proxy/state/seen; sleep 1000`
	f, log := fleetOf(t, func(e *Exec) {
		e.Program, e.Mounts = "/bin/sh", []Mount{{Tmpfs, "/run/proxy/state"}}
		e.Args, e.Ready, e.Cleanup = []string{"-c", note, "sh", "LOG"}, Ready{Command: []string{"/bin/sh", "-c", "[ -e /run/proxy/state/seen ]"}}, nil
		e.Stop = Stop{"KILL", time.Second}
	})
	program := f.runs["node-1"]
	program.Spec.Exec.Args[3] = log
	// started starts the proxy and waits until it has written: where its mount has kept the content, it is ready before that.
	started := func(want string) error {
		if err := f.Start(t.Context(), "node-1"); err != nil {
			return err
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			got, err := os.ReadFile(log)
			if string(got) == want {
				return nil
			}
			if time.Now().After(end) {
				return errors.Join(err, fmt.Errorf("the proxy wrote %q, want %q", got, want))
			}
		}
	}
	node := f.cfg.Net.Nodes[0]
	for _, step := range []func() error{
		func() error { return started("new\n") },
		func() error { return f.Kill(t.Context(), "node-1") },
		func() error { return started("new\nkept\n") },
		func() error { return f.Kill(t.Context(), "node-1") },
		func() error { return errors.Join(node.Discard(), node.Boot(topology.Config{}), f.Prepare("node-1")) },
		func() error { return started("new\nkept\nnew\n") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat("/run/proxy"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mount is also outside of the node: %v", err)
	}
}

// A proxy has the time that its file gives until it is ready.
func TestReadyWithin(t *testing.T) {
	f, _ := fleetOf(t, func(e *Exec) {
		e.Ready = Ready{Command: []string{"/bin/sh", "-c", "exit 1"}, Within: 300 * time.Millisecond}
	})
	begin := time.Now()
	err := f.StartAll(t.Context())
	if err == nil || !strings.Contains(err.Error(), "did not become ready within 300ms") || time.Since(begin) > 20*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}
