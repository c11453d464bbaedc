package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// Plugin is a CNI plugin that is chained after the lab's own network: it gets each pod's finished link, and may attach to it.
type Plugin struct {
	Path   string          // program in the files of the node
	Config json.RawMessage // network configuration, an object with cniVersion, name and type
}

// PluginOf is the plugin of a subject; nil for none.
func PluginOf(s subject.Spec) *Plugin {
	if s.Exec == nil || s.Exec.CNI == nil {
		return nil
	}
	return &Plugin{s.Exec.CNI.Program, json.RawMessage(s.Exec.CNI.Config)}
}

// Attach chains the plugin after the finished link of a pod whose namespace has this path, for nodes without a kubelet. It tries until that
// succeeds or ctx ends.
func (p *Plugin) Attach(ctx context.Context, node *topology.Node, pod *corev1.Pod, link topology.PodLink, netns string) error {
	failed := errors.New("the plugin was not called")
	if err := (cniCall{p, node.Run, pod, link, netns}).add(ctx, func(err error) { failed = err }); err != nil {
		return fmt.Errorf("attaching pod %s to its network: %w", pod.Name, errors.Join(err, failed))
	}
	return nil
}

// cniTimeout bounds one call of a plugin, as the kubelet's runtimeRequestTimeout for a sandbox; cniBackoff is the time until the next call
// of a failed ADD, as the kubelet's for a pod whose sandbox failed.
const (
	cniTimeout = 4 * time.Minute
	cniBackoff = 10 * time.Second
)

// attachment is what a plugin does for a pod.
type attachment interface {
	// add attaches the pod, and tries until that succeeds or ctx ends. failed gets each failure.
	add(ctx context.Context, failed func(error)) error
	remove() error
}

// cniCall is a call of a plugin for a pod, as the CNI specification 1.0 describes it.
type cniCall struct {
	plugin *Plugin
	run    func(*exec.Cmd) error // on the node
	pod    *corev1.Pod
	link   topology.PodLink
	netns  string // path
}

func (c cniCall) add(ctx context.Context, failed func(error)) error {
	for {
		err := c.call(ctx, "ADD")
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		failed(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(cniBackoff):
		}
	}
}

func (c cniCall) remove() error { return c.call(context.Background(), "DEL") }

// call runs the plugin once. The error has the message of its answer.
func (c cniCall) call(ctx context.Context, command string) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cniTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.plugin.Path)
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin", "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + string(c.pod.UID), "CNI_NETNS=" + c.netns, "CNI_IFNAME=eth0",
		"CNI_PATH=" + path.Dir(c.plugin.Path), "CNI_ARGS=" + strings.Join([]string{"IgnoreUnknown=1", "K8S_POD_NAMESPACE=" + c.pod.Namespace,
			"K8S_POD_NAME=" + c.pod.Name, "K8S_POD_INFRA_CONTAINER_ID=" + string(c.pod.UID), "K8S_POD_UID=" + string(c.pod.UID)}, ";")}
	var out, msg bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(config), &out, &msg
	if err := c.run(cmd); err != nil {
		var answer struct{ Msg, Details string }
		_ = json.Unmarshal(out.Bytes(), &answer) // a plugin that crashed has no answer
		return fmt.Errorf("CNI %s by %s: %w: %s", command, path.Base(c.plugin.Path), err, strings.TrimSpace(strings.Join([]string{answer.Msg, answer.Details, msg.String()}, " ")))
	}
	return nil
}

// config is the plugin's configuration with the result of the lab's network.
func (c cniCall) config() ([]byte, error) {
	config := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.plugin.Config, &config); err != nil {
		return nil, fmt.Errorf("reading the configuration of the CNI plugin: %w", err)
	}
	type iface struct {
		Name    string `json:"name"`
		Mac     string `json:"mac,omitempty"`
		Sandbox string `json:"sandbox,omitempty"`
	}
	type address struct {
		Interface int    `json:"interface"`
		Address   string `json:"address"`
		Gateway   string `json:"gateway"`
	}
	result := struct {
		CNIVersion json.RawMessage `json:"cniVersion"`
		Interfaces []iface         `json:"interfaces"`
		IPs        []address       `json:"ips"`
	}{CNIVersion: config["cniVersion"], Interfaces: []iface{{Name: c.link.Host, Mac: c.link.HostMAC.String()}, {"eth0", c.link.MAC.String(), c.netns}}}
	for i, p := range c.link.Addresses {
		result.IPs = append(result.IPs, address{1, p.String(), c.link.Gateways[i].String()})
	}
	text, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	config["prevResult"] = text
	return json.Marshal(config)
}

// attach chains the plugin, then starts the containers. A deletion of the pod ends it.
func (p *pod) attach(ctx context.Context) {
	chained := p.sandbox.chained(p.object)
	if chained == nil {
		p.startContainers(ctx)
		return
	}
	waiting, cancel := context.WithCancel(ctx)
	p.waiting, p.cancelWait = true, cancel
	p.k.live.Go(func() {
		err := chained.add(waiting, func(err error) { p.k.Log.Warn("attaching a pod to its network", "pod", p.name, "error", err) })
		cancel()
		p.post(func() {
			p.waiting = false
			if err == nil {
				p.startContainers(ctx)
			}
		})
	})
}

func (p *pod) startContainers(ctx context.Context) {
	p.record(record.PodCreated, "its network is laid")
	if p.k.Workloads != nil {
		if ports := p.hostPorts(); len(ports) > 0 {
			if p.startErr = p.sandbox.hostPorts(ports); p.startErr != nil {
				return
			}
		}
		p.prepare(ctx)
		return
	}
	for _, c := range p.containers {
		c.start(ctx)
	}
}

// detach calls the plugin's DEL. The pod's link is removed whatever it answers.
func (p *pod) detach() {
	chained := p.sandbox.chained(p.object)
	if chained == nil {
		return
	}
	if err := chained.remove(); err != nil {
		p.k.Log.Warn("detaching a pod from its network", "pod", p.name, "error", err)
	}
}

// check returns an error for a plugin that cannot be called.
func (p *Plugin) check() error {
	if p != nil && (p.Path == "" || !json.Valid(p.Config)) {
		return errors.New("Config.Plugin needs a path and a configuration in JSON")
	}
	return nil
}
