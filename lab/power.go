package lab

import (
	"context"
	"fmt"

	"github.com/hitless/hitless/lab/controllers"
	"github.com/hitless/hitless/lab/kubelet"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// power controls the parts of a node that end with its power, except its proxy.
type power struct {
	lab  context.Context // ends with the lab
	off  context.CancelFunc
	gone chan struct{}      // closed when the kubelet has ended
	back context.CancelFunc // ends the controllers of a node without power; nil while the node has power
}

// startKubelet starts a node's kubelet, which ends with ctx or when the node loses power.
func (l *Lab) startKubelet(ctx context.Context, node *topology.Node) *power {
	lease := kubelet.DefaultLease
	if l.Replay != nil {
		lease = -1 // replay does not read heartbeats
	}
	p := &power{lab: ctx, gone: make(chan struct{})}
	var on context.Context
	on, p.off = context.WithCancel(ctx)
	l.runPart(on, "the kubelet of "+node.Name, func(ctx context.Context) error {
		defer close(p.gone)
		return kubelet.Run(ctx, kubelet.Config{Node: node, Client: l.Client, Procs: l.Procs, Lease: lease, Proxies: l.proxyImages(), Plugin: l.plugin(), Workloads: l.pods,
			Backend: kubelet.Program{Path: l.cfg.Program, Args: []string{"backend"}}, Recorder: l.cfg.Recorder, Now: l.cfg.Now})
	})
	return p
}

// PowerOff cuts the power of a node without warning: its link goes down, all its programs are killed, and its files are lost. The API
// server is not told. PowerOff returns when no program runs on the node. It must not be called concurrently with
// itself or PowerOn.
func (l *Lab) PowerOff(ctx context.Context, name string) error {
	node, err := l.Net.Node(name)
	if err != nil {
		return err
	}
	p := l.nodes[name]
	if p.back != nil {
		return fmt.Errorf("%s has no power already", name)
	}
	l.recordPower(name, record.NodeOff, name+" lost power")
	if err := l.Net.Cut(node); err != nil {
		return err
	}
	p.off()
	if _, err := l.Proxies.Pid(name); err == nil {
		if err := l.Proxies.Kill(ctx, name); err != nil {
			return err
		}
	}
	<-p.gone
	if err := node.Discard(); err != nil {
		return err
	}
	var away context.Context
	away, p.back = context.WithCancel(p.lab)
	if l.Replay != nil { // the real control plane has its own node lifecycle controller
		l.runPart(away, "the lifecycle of "+name, func(ctx context.Context) error { return controllers.Lose(ctx, l.Client, name) })
	}
	return nil
}

// PowerOn boots a node without power: its kernel tables and its files are empty, its kubelet starts the pods that are bound to it,
// and its proxy starts. It returns when the proxy is ready.
func (l *Lab) PowerOn(ctx context.Context, name string) error {
	node, err := l.Net.Node(name)
	if err != nil {
		return err
	}
	p := l.nodes[name]
	if p.back == nil {
		return fmt.Errorf("%s has power", name)
	}
	p.back()
	if err := l.Net.Rebuild(node); err != nil {
		return err
	}
	l.recordPower(name, record.NodeOn, name+" boots")
	if err := l.Proxies.Prepare(name); err != nil {
		return err
	}
	l.nodes[name] = l.startKubelet(p.lab, node)
	return l.Proxies.Start(ctx, name)
}

func (l *Lab) recordPower(node string, state record.NodeState, text string) {
	l.cfg.Recorder.Event(record.Event{At: l.cfg.Now(), Node: node, Object: node, Text: text,
		Body: record.Node{State: state}})
}

// plugin is the CNI plugin of the subject; nil for none.
func (l *Lab) plugin() *kubelet.Plugin { return kubelet.PluginOf(l.choice.Subjects[0].Spec) }
