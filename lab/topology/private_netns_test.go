//go:build netns

package topology

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/procs"
)

// ownKernel tells the tests that they run in a kernel of the lab's own: suites/proxier sets it.
var ownKernel = os.Getenv("HITLESS_OWN_KERNEL") != ""

// created makes a network in a namespace that ends with the test: its bridge would be in the way of the next one.
func created(t *testing.T, cfg Config) *Network {
	t.Helper()
	_, n := createdIn(t, cfg)
	return n
}

// createdIn is created, and returns the lab's own namespace too.
func createdIn(t *testing.T, cfg Config) (*Namespace, *Network) {
	t.Helper()
	home, err := NewNamespace("home")
	if err != nil {
		t.Fatal(err)
	}
	var n *Network
	if err := home.Do(func() (err error) { n, err = Create(cfg); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(); home.Close() })
	return home, n
}

// helper is the environment variable by which this program is a program of a node, in a guest that has no others.
const helper = "HITLESS_TEST_HELPER"

func TestMain(m *testing.M) {
	what, is := os.LookupEnv(helper)
	if !is {
		os.Exit(m.Run())
	}
	if err := help(what, os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// help is what a program of a node does.
func help(what string, args []string) error {
	switch what {
	case "make":
		for _, dir := range args {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
	case "list":
		for _, dir := range args {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				fmt.Println(e.Name())
			}
		}
	case "groups":
		data, err := os.ReadFile("/proc/self/cgroup")
		fmt.Printf("%s", data)
		return errors.Join(err, help("list", []string{"/sys/fs/cgroup"}))
	case "write":
		return os.WriteFile(args[0], []byte(args[1]), 0)
	case "daemon":
		child := exec.Command("/proc/self/exe")
		child.Env, child.SysProcAttr = []string{helper + "=wait"}, &syscall.SysProcAttr{Setsid: true}
		err := child.Start()
		fmt.Println(child.Process.Pid)
		return err
	case "wait":
		time.Sleep(time.Hour)
	}
	return nil
}

// started is the specification of a program of a node; name is that of its log.
func started(name, what string, args ...string) procs.Spec {
	self, _ := os.Executable() // on Linux it is known
	return procs.Spec{Name: name, Path: self, Args: args, Env: []string{helper + "=" + what}}
}

// output is the output of a program that runs on a node to its end.
func output(t *testing.T, s *procs.Supervisor, node *Node, spec procs.Spec) string {
	t.Helper()
	p, err := node.Start(s, GroupProxy, spec)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() != nil {
		t.Fatalf("%s: %v: %s", spec.Name, p.Err(), s.Tail(spec.Name, 5))
	}
	return s.Tail(spec.Name, 100)
}

// A program of a node keeps its files after its end, and neither another node nor the lab sees them. A loss of power removes them.
func TestFilesOfANode(t *testing.T) {
	n := created(t, Config{Nodes: 2, OwnKernel: ownKernel})
	s, err := procs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{"/run", "/var/run", "/var/lib"}
	if ownKernel { // a user namespace may have no BPF file system
		dirs = append(dirs, "/sys/fs/bpf")
	}
	name := fmt.Sprintf("hitless-test-%d", os.Getpid())
	var made []string
	for i, dir := range dirs {
		made = append(made, filepath.Join(dir, fmt.Sprint(name, i)))
	}
	output(t, s, n.Nodes[0], started("make", "make", made...))
	if after := output(t, s, n.Nodes[0], started("after", "list", dirs...)); strings.Count(after, name) != len(dirs)+2 { // /var/run is /run
		t.Errorf("after its end another program of the node sees %q, want all of its directories", after)
	}
	if other := output(t, s, n.Nodes[1], started("other", "list", dirs...)); strings.Contains(other, name) {
		t.Errorf("another node sees %q", other)
	}
	for _, dir := range made { // the twin: a process outside of the node's namespaces sees others
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("outside of the nodes there is %s (%v)", dir, err)
		}
	}
	if err := n.Nodes[0].Discard(); err != nil {
		t.Fatal(err)
	}
	if err := n.Nodes[0].Inside(func() error { return nil }); err == nil || !strings.Contains(err.Error(), "no power") {
		t.Errorf("something ran on a node without power: %v", err)
	}
	if err := n.Nodes[0].Boot(n.cfg); err != nil {
		t.Fatal(err)
	}
	if again := output(t, s, n.Nodes[0], started("again", "list", dirs...)); strings.Contains(again, name) {
		t.Errorf("after a power cycle the node sees %q", again)
	}
}

// /sys has the network devices of the node, and not those of the lab.
func TestDevicesOfANode(t *testing.T) {
	n := created(t, Config{Nodes: 1, OwnKernel: ownKernel})
	s, err := procs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	seen := strings.Fields(output(t, s, n.Nodes[0], started("devices", "list", "/sys/class/net")))
	if !slices.Contains(seen, "eth0") || !slices.Contains(seen, "pods") || slices.Contains(seen, "fab-n1") {
		t.Errorf("the node's /sys has the devices %v, want eth0 and pods, and not the lab's fab-n1", seen)
	}
	write := exec.Command("/proc/self/exe", "/sys/class/net/eth0/mtu", "1400")
	write.Env = []string{helper + "=write"}
	if err := n.Nodes[0].Run(write); (err == nil) != ownKernel {
		t.Errorf("in a kernel of the lab's own (%t) a write to the node's /sys gave %v", ownKernel, err)
	}
}

// A node boots with copies of its files, which it may change.
func TestFilesThatANodeBootsWith(t *testing.T) {
	from := t.TempDir()
	for _, path := range []string{"var/lib/proxy/a", "run/proxy/b"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(from, filepath.Dir(path)), 0o755), os.WriteFile(filepath.Join(from, path), []byte("new"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "var/lib/proxy/program"), self, 0o755); err != nil {
		t.Fatal(err)
	}
	n := created(t, Config{Nodes: 2, Files: from})
	s, err := procs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program := started("program", "list", "/var/lib/proxy")
	program.Path = "/var/lib/proxy/program"
	if seen := output(t, s, n.Nodes[0], program); !strings.Contains(seen, "program") {
		t.Errorf("a program of the node's files saw %q", seen)
	}
	change := func(node *Node) (was string) {
		t.Helper()
		if err := node.Inside(func() error {
			for _, path := range []string{"/var/lib/proxy/a", "/var/run/proxy/b"} {
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				was += string(text) + " "
				if err := os.WriteFile(path, []byte("changed"), 0o644); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return was
	}
	for _, node := range n.Nodes {
		if was := change(node); was != "new new " {
			t.Errorf("%s booted with %q", node.Name, was)
		}
	}
	if was := change(n.Nodes[0]); was != "changed changed " {
		t.Errorf("without a power cycle %s has %q", n.Nodes[0].Name, was)
	}
	if err := errors.Join(n.Nodes[0].Discard(), n.Nodes[0].Boot(n.cfg)); err != nil {
		t.Fatal(err)
	}
	if was := change(n.Nodes[0]); was != "new new " {
		t.Errorf("after a power cycle %s has %q", n.Nodes[0].Name, was)
	}
}

// Without a kernel of the lab's own a node has no control group.
func TestNoControlGroupInAnotherKernel(t *testing.T) {
	if n := created(t, Config{Nodes: 1}); n.Nodes[0].own.group != nil {
		t.Error("in the kernel of this machine the node has a control group")
	}
}

// Programs of a node and of its pods, and their children, are in the node's control group, which is all that they see. It ends with the
// node's power, also for a program that has left its session.
func TestControlGroupOfANode(t *testing.T) {
	if !ownKernel {
		t.Skip("runs only in a kernel of the lab's own, which has the control groups for itself: in suites/proxier")
	}
	n := created(t, Config{Nodes: 2, OwnKernel: true})
	s, err := procs.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pod, err := n.Nodes[0].AddPod("pod", n.Nodes[0].PodCIDR.Addr().Next().Next())
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	for name, start := range map[string]func(procs.Spec) (*procs.Process, error){
		"/proxy":  func(spec procs.Spec) (*procs.Process, error) { return n.Nodes[0].Start(s, GroupProxy, spec) },
		"/pods":   func(spec procs.Spec) (*procs.Process, error) { return n.Nodes[0].StartIn(pod, s, GroupPods, spec) },
		"/system": func(spec procs.Spec) (*procs.Process, error) { return n.Nodes[0].Start(s, GroupSystem, spec) },
	} {
		log := "in" + strings.ReplaceAll(name, "/", "-")
		p, err := start(started(log, "groups"))
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		said := strings.Fields(s.Tail(log, 100))
		if !slices.Contains(said, "0::"+name) || !slices.Contains(said, GroupPods) || slices.Contains(said, n.Nodes[1].Name) {
			t.Errorf("in %s a program sees %q, want 0::%s and the node's own groups only", name, said, name)
		}
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || strings.Contains(string(data), n.Nodes[0].Name) {
		t.Errorf("%v, the lab itself is in %s", err, data)
	}
	// A child in a session of its own outlives the program that started it.
	p, err := n.Nodes[0].Start(s, GroupProxy, started("daemon", "daemon"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	var pid int
	if _, err := fmt.Sscan(s.Tail("daemon", 1), &pid); err != nil || unix.Kill(pid, 0) != nil {
		t.Fatalf("%v: the child %d does not run", err, pid)
	}
	begin := time.Now()
	if err := n.Nodes[0].Discard(); err != nil {
		t.Fatal(err)
	}
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !bytes.Contains(state, []byte(") Z ")) {
		t.Errorf("a child of the proxy runs %s after the loss of power: %s", time.Since(begin), state)
	}
	if _, err := os.Stat("/sys/fs/cgroup/" + n.Nodes[0].Name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the loss of power the control group is still there (%v)", err)
	}
	if err := n.Nodes[0].Boot(n.cfg); err != nil {
		t.Error(err)
	}
}
