// Package lab assembles the embedded cluster: network, control plane, pods, external load balancer and the subject on
// each node. Package scenarios changes the cluster, package probes measures it.
package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/hitless/hitless/lab/balancer"
	"github.com/hitless/hitless/lab/controllers"
	"github.com/hitless/hitless/lab/kube"
	"github.com/hitless/hitless/lab/kubelet"
	"github.com/hitless/hitless/lab/procs"
	"github.com/hitless/hitless/lab/replay"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/observers"
	"github.com/hitless/hitless/record"
)

// Config configures a lab.
type Config struct {
	Network      topology.Config // its family is also that of Services that name none; not IPv4 only with the control plane replay
	ControlPlane string          // kube or replay
	Dir          string          // directory for state and logs, on a tmpfs
	Program      string          // the hitless binary, which contains the backend and the bundled proxier
	Binaries     string          // directory of the control plane's programs
	Objects      []string        // files with objects of the API that are created with the control plane, in this order
	Images       bool            // pods run the programs of their images, as in a cluster; with the control plane kube only
	Recorder     record.Recorder
	Now          func() time.Duration
	Progress     func(string)
	// Choose is called once, when the control plane is up and the nodes are registered. Labs are identical up to this
	// call.
	Choose func() (Choice, error)
}

// Choice configures the parts that start after the control plane.
type Choice struct {
	Subjects   []subject.Program // the first is started on each node; the others can replace it
	SubjectEnv []string          // added to the environment of the subjects
	Balancer   balancer.Config   // kind and health checks; the lab fills in the rest
	// DaemonSet runs the first subject in the pods of a DaemonSet. All subjects are kube-proxies, and pods can run each of them.
	DaemonSet bool
	// IPVSAfterFailure suppresses reads of the nodes' IPVS tables until an attempt has failed. Each read wakes up the VM.
	IPVSAfterFailure bool
}

// Lab is a running cluster.
type Lab struct {
	Net        *topology.Network
	Procs      *procs.Supervisor
	Client     kubernetes.Interface
	Kubeconfig string
	Replay     *replay.Server // nil with a real control plane
	Proxies    *subject.Fleet
	Balancer   *balancer.Balancer
	Tables     *observers.Tables // nil when no subject has a known table
	Conntrack  *observers.Conntrack

	cfg    Config
	choice Choice
	pods   *kubelet.Workloads // nil for stand-ins
	table  *membershipRecorder
	stop   context.CancelFunc
	nodes  map[string]*power // by name
	wait   sync.WaitGroup
	failed chan error
}

// Up brings a lab up and returns when the subject is ready on every node. Failed reports parts that end early.
func Up(ctx context.Context, cfg Config) (*Lab, error) {
	l := &Lab{cfg: cfg, failed: make(chan error, 16), table: newMembershipRecorder(cfg.Recorder), nodes: map[string]*power{}}
	ctx, l.stop = context.WithCancel(ctx)
	if err := l.bringUp(ctx); err != nil {
		l.Down()
		return nil, fmt.Errorf("bringing the lab up: %w", err)
	}
	return l, nil
}

func (l *Lab) bringUp(ctx context.Context) (err error) {
	if l.Procs, err = procs.New(filepath.Join(l.cfg.Dir, "logs")); err != nil {
		return err
	}
	l.cfg.Progress("creating the network")
	if l.Net, err = topology.Create(l.cfg.Network); err != nil {
		return err
	}
	l.cfg.Progress("starting the control plane (" + l.cfg.ControlPlane + ")")
	if err := l.startControlPlane(ctx); err != nil {
		return err
	}
	if err := kube.CreateObjects(ctx, l.Kubeconfig, nil, l.cfg.Objects); err != nil {
		return err
	}
	if l.choice, err = l.cfg.Choose(); err != nil {
		return err
	}
	if err := l.watchTables(ctx); err != nil {
		return err
	}
	if l.Conntrack, err = observers.NewConntrack(l.observedNodes(), l.cfg.Recorder, l.cfg.Now); err != nil {
		return err
	}
	l.runPart(ctx, "the conntrack observer", l.Conntrack.Run)
	if l.Client, err = kube.NewClient(l.Kubeconfig, ""); err != nil {
		return err
	}
	l.cfg.Progress("starting pods and load balancer")
	for _, node := range l.Net.Nodes {
		l.nodes[node.Name] = l.startKubelet(ctx, node)
	}
	if err := l.startBalancer(ctx); err != nil {
		return err
	}
	l.runPart(ctx, "the observer of the API", func(ctx context.Context) error {
		return observers.WatchAPI(ctx, l.Client, metav1.NamespaceAll, l.cfg.Recorder, l.cfg.Now)
	})
	l.cfg.Progress("starting " + l.choice.Subjects[0].Spec.String() + " on each node")
	return l.startSubject(ctx)
}

// watchTables starts the observer of the kernel tables that the subjects of this lab use.
func (l *Lab) watchTables(ctx context.Context) (err error) {
	in := func(names ...string) bool {
		return slices.ContainsFunc(l.choice.Subjects, func(p subject.Program) bool { return slices.Contains(names, p.Spec.Tables()) })
	}
	kinds := observers.TableKinds{IPVS: in("ipvs"), NFTables: in("nftables", "iptables"), BPF: in(subject.CiliumMaps), IPVSAfterFailure: l.choice.IPVSAfterFailure}
	if !kinds.IPVS && !kinds.NFTables && !kinds.BPF {
		return nil
	}
	if l.Tables, err = observers.NewTables(l.observedNodes(), kinds, l.cfg.Recorder, l.cfg.Now); err != nil {
		return err
	}
	l.cfg.Recorder = tableNotifier{l.cfg.Recorder, l.Tables}
	l.runPart(ctx, "the table observer", l.Tables.Run)
	return nil
}

// GroupClients starts clients on nodes if a subject translates the connections of their control groups; else it is nil.
func (l *Lab) GroupClients() *procs.Supervisor {
	if slices.ContainsFunc(l.choice.Subjects, func(p subject.Program) bool { return p.Spec.Exec.NeedsGroups() }) {
		return l.Procs
	}
	return nil
}

func (l *Lab) observedNodes() []observers.Node {
	nodes := make([]observers.Node, len(l.Net.Nodes))
	for i, n := range l.Net.Nodes {
		nodes[i] = observers.Node{Name: n.Name, Addrs: n.Addrs(), Namespace: n.Namespace, Inside: n.Inside}
	}
	return nodes
}

// tableNotifier passes events on and notifies the table observer of each.
type tableNotifier struct {
	record.Recorder
	tables *observers.Tables
}

// Event records an event, after which the observer reads the tables that it may have changed.
func (t tableNotifier) Event(e record.Event) {
	t.Recorder.Event(e)
	t.tables.EventRecorded(e.Kind())
}

// runPart runs a part of the lab until ctx ends; Failed reports its failure.
func (l *Lab) runPart(ctx context.Context, name string, run func(ctx context.Context) error) {
	l.wait.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			select {
			case l.failed <- fmt.Errorf("%s failed: %w", name, err):
			default: // the first failures ended the run, and Down must not wait for a reader
			}
		}
	})
}

// Failed returns the channel of failed parts. A failure makes the run invalid.
func (l *Lab) Failed() <-chan error { return l.failed }

func (l *Lab) startControlPlane(ctx context.Context) error {
	if l.cfg.ControlPlane == record.ControlReplay {
		return l.startReplay(ctx)
	}
	binaries := map[string]string{}
	for _, name := range kube.Programs() {
		binaries[name] = filepath.Join(l.cfg.Binaries, name)
	}
	var nodes []kube.Node
	for _, n := range l.Net.Nodes {
		nodes = append(nodes, kube.NodeOf(n))
	}
	plane, err := kube.Up(ctx, kube.Config{Binaries: binaries, Dir: filepath.Join(l.cfg.Dir, "control-plane"), Procs: l.Procs, Nodes: nodes,
		Workloads: l.cfg.Images})
	if err != nil {
		return err
	}
	l.runPart(ctx, "the control plane", plane.Watch)
	l.Kubeconfig = plane.Kubeconfig
	if l.cfg.Images {
		l.pods = &kubelet.Workloads{DNS: dnsAddress}
		l.pods.Server.Certificate, l.pods.Server.Key, l.pods.Server.ClientCA = plane.KubeletFiles()
	}
	return nil
}

const replayPort = "8001"

func (l *Lab) startReplay(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(l.Net.Plans()[0].Control.String(), replayPort))
	if err != nil {
		return fmt.Errorf("starting the replay control plane: %w", err)
	}
	server := replay.New()
	l.Replay = server
	l.runPart(ctx, "the replay control plane", func(ctx context.Context) error { return server.Serve(ctx, listener) })
	l.Kubeconfig = filepath.Join(l.cfg.Dir, "replay.kubeconfig")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"lab",
"clusters":[{"name":"lab","cluster":{"server":"http://%s"}}],"users":[{"name":"lab","user":{}}],
"contexts":[{"name":"lab","context":{"cluster":"lab","user":"lab"}}]}`, listener.Addr())
	if err := os.WriteFile(l.Kubeconfig, []byte(config), 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	client, err := kube.NewClient(l.Kubeconfig, "")
	if err != nil {
		return err
	}
	if err := kube.CreateNamespaces(ctx, client); err != nil {
		return err
	}
	for _, n := range l.Net.Nodes {
		if err := kube.CreateNode(ctx, client, kube.NodeOf(n)); err != nil {
			return err
		}
	}
	l.runPart(ctx, "the replay controllers", func(ctx context.Context) error {
		return controllers.Run(ctx, client, l.cfg.Network.Family, l.Net.NodeNames())
	})
	return nil
}

func (l *Lab) startBalancer(ctx context.Context) (err error) {
	cfg := l.choice.Balancer
	cfg.Net, cfg.Client, cfg.Procs, cfg.Now, cfg.Recorder = l.Net, l.Client, l.Procs, l.cfg.Now, l.table
	cfg.Finalizers = cfg.AsCloud && l.cfg.Images // other labs have no writes that only suites look at
	if l.Balancer, err = balancer.New(cfg); err != nil {
		return err
	}
	l.runPart(ctx, "the load balancer", l.Balancer.Run)
	return nil
}

func (l *Lab) startSubject(ctx context.Context) (err error) {
	l.Proxies, err = subject.NewFleet(subject.Config{Programs: l.choice.Subjects, Net: l.Net, Procs: l.Procs,
		Kubeconfig: l.Kubeconfig, ClusterCIDR: l.clusterCIDR(), Flags: l.subjectFlags(), Env: l.choice.SubjectEnv, Recorder: l.cfg.Recorder, Now: l.cfg.Now})
	if err != nil {
		return err
	}
	start := l.Proxies.StartAll
	if l.choice.DaemonSet {
		start = l.startDaemonSet
	}
	if err := start(ctx); err != nil || !l.cfg.Images {
		return err
	}
	return l.startDNS(ctx)
}

// clusterCIDR are the ranges of all pods, separated by commas.
func (l *Lab) clusterCIDR() string {
	var all []string
	for _, p := range l.Net.Plans() {
		all = append(all, p.Cluster.String())
	}
	return strings.Join(all, ",")
}

// subjectFlags are flags that subjects need besides their own. The load balancer checks their health over each family, and the default
// is IPv4 only.
func (l *Lab) subjectFlags() []string {
	if slices.Contains(l.cfg.Network.Family.Each(), record.IPv6) {
		return []string{"--healthz-bind-address=[::]:10256"}
	}
	return nil
}

// Balanced returns the load balancer's membership of a Service: the nodes that get new flows to all of its ports,
// sorted.
func (l *Lab) Balanced(service string) []string { return l.table.nodes(service) }

// Down stops all parts and programs and removes the network.
func (l *Lab) Down() {
	l.stop()
	if l.Procs != nil {
		l.Procs.StopAll(time.Second)
	}
	l.wait.Wait()
	if l.Net != nil {
		l.Net.Close()
	}
}
