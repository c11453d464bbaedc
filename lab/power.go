package lab

import (
	"context"
	"fmt"

	"github.com/hitless/hitless/lab/controllers"
	"github.com/hitless/hitless/lab/kubelet"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// power is what runs on a node besides its proxy.
type power struct {
	lab  context.Context // of the whole lab
	off  context.CancelFunc
	gone chan struct{}      // closed when nothing of it runs any more
	back context.CancelFunc // ends what goes on while the node is off; nil while it is on
}

// kubelet starts a node's kubelet, which ends with ctx or when the node loses power.
func (l *Lab) kubelet(ctx context.Context, node *topology.Node) *power {
	lease := kubelet.DefaultLease
	if l.Replay != nil {
		lease = -1 // nobody reads heartbeats there
	}
	p := &power{lab: ctx, gone: make(chan struct{})}
	var on context.Context
	on, p.off = context.WithCancel(ctx)
	l.part(on, "the kubelet of "+node.Name, func(ctx context.Context) error {
		defer close(p.gone)
		return kubelet.Run(ctx, kubelet.Config{Node: node, Client: l.Client, Procs: l.Procs, Lease: lease,
			Backend: kubelet.Program{Path: l.cfg.Program, Args: []string{"backend"}}, Recorder: l.cfg.Recorder, Now: l.cfg.Now})
	})
	return p
}

// PowerOff takes the power from a node without warning: nothing leaves it any more, and every program on it ends at once.
// The API hears nothing of it. It returns when nothing runs there. It is not for use beside itself or PowerOn.
func (l *Lab) PowerOff(ctx context.Context, name string) error {
	node, err := l.Net.Node(name)
	if err != nil {
		return err
	}
	p := l.nodes[name]
	if p.back != nil {
		return fmt.Errorf("%s has no power already", name)
	}
	l.tellPower(name, "off", name+" lost power")
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
	var away context.Context
	away, p.back = context.WithCancel(p.lab)
	if l.Replay != nil { // the real control plane misses the heartbeats by itself
		l.part(away, "the lifecycle of "+name, func(ctx context.Context) error { return controllers.Lose(ctx, l.Client, name) })
	}
	return nil
}

// PowerOn boots a node that has no power: nothing is left in its kernel, its kubelet starts the pods that are bound to it,
// and its proxy starts. It returns when the proxy is accepted.
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
	l.tellPower(name, "on", name+" boots")
	if err := l.Proxies.Prepare(name); err != nil {
		return err
	}
	l.nodes[name] = l.kubelet(p.lab, node)
	return l.Proxies.Start(ctx, name)
}

func (l *Lab) tellPower(node, state, text string) {
	l.cfg.Recorder.Event(record.Event{At: l.cfg.Now(), LegacyKind: record.KindNode, Node: node, Object: node, Text: text,
		Attrs: map[string]string{"state": state}})
}
