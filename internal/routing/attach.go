//go:build linux

package routing

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/lab/kubelet"
	"github.com/hitless/hitless/lab/subject"
	"github.com/hitless/hitless/lab/topology"
)

// attachWithin bounds the time until a subject has attached a pod.
const attachWithin = 5 * time.Minute

// outside are the node's devices that do not lead to its pods. The first leads to other nodes.
func outside() (devices []string) {
	for _, h := range hosts() {
		switch h.nodeName {
		case nodeName:
		case "":
			devices = append(devices, h.name)
		default:
			devices = append([]string{h.name}, devices...)
		}
	}
	return devices
}

// describePods makes the objects of the node's pods, for a subject that attaches them.
func (w *Testbed) describePods(s subject.Spec) error {
	if kubelet.PluginOf(s) == nil {
		return nil
	}
	for _, h := range w.attached() {
		if err := w.Apply(h.pod(s)); err != nil {
			return err
		}
	}
	return nil
}

// attachPods attaches the node's pods by the subject's CNI plugin, and makes the clients on the node programs of the node.
func (w *Testbed) attachPods(ctx context.Context, s subject.Spec) error {
	plugin := kubelet.PluginOf(s)
	if plugin == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, attachWithin, fmt.Errorf("the pods are not attached after %s", attachWithin))
	defer cancel()
	if err := w.startAskers(ctx); err != nil {
		return err
	}
	for _, h := range w.attached() {
		link, err := w.link(h, s)
		if err != nil {
			return err
		}
		if err := plugin.Attach(ctx, w.node, h.pod(s), link, h.ns.Path()); err != nil {
			return err
		}
		if err := w.node.Do(func() error { return routeFromNode(h.name, link.Addresses) }); err != nil {
			return fmt.Errorf("routing to pod %s: %w", h.name, err)
		}
	}
	return nil
}

// routeFromNode makes the node's own packets to a pod come from its primary address, as in the lab. Agents take the addresses of devices
// that lead to pods for those of other hosts.
func routeFromNode(device string, pod []netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, p := range pod {
		src := nodeAddr
		if p.Addr().Is6() {
			src = nodeAddr6
		}
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: netlink.NewIPNet(p.Addr().AsSlice()), Src: net.ParseIP(src)}
		if err := netlink.RouteReplace(r); err != nil {
			return err
		}
	}
	return nil
}

// attached are the pods of the node, also the one that is a client only.
func (w *Testbed) attached() (all []*host) {
	for _, h := range hosts() {
		if h.nodeName == nodeName {
			all = append(all, w.hosts[h.name])
		}
	}
	return all
}

// families are the addresses of a host that a subject serves, and the gateways to the node.
func (h *host) families(s subject.Spec) (addrs, gateways []netip.Addr) {
	for i, text := range h.addrs {
		if addr := netip.MustParseAddr(text); addr.Is4() || s.DualStack() {
			addrs, gateways = append(addrs, addr), append(gateways, netip.MustParseAddr(h.nodeAddrs[i]))
		}
	}
	return addrs, gateways
}

// pod is the object of a pod that runs.
func (h *host) pod(s subject.Spec) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: h.name, UID: types.UID(h.name), Labels: map[string]string{"app": h.name}}}
	p.Spec.NodeName = nodeName
	p.Spec.Containers = []v1.Container{{Name: "backend", Image: "backend"}}
	addrs, _ := h.families(s)
	for _, a := range addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, v1.PodIP{IP: a.String()})
	}
	p.Status.Phase, p.Status.PodIP = v1.PodRunning, addrs[0].String()
	return p
}

// link describes the link between the node and a pod.
func (w *Testbed) link(h *host, s subject.Spec) (link topology.PodLink, err error) {
	link.Host = h.name
	addrs, gateways := h.families(s)
	link.Gateways = gateways
	for _, a := range addrs {
		link.Addresses = append(link.Addresses, netip.PrefixFrom(a, a.BitLen()))
	}
	mac := func(ns namespace, name string) (mac []byte) {
		if err == nil {
			err = ns.Do(func() error {
				device, err := netlink.LinkByName(name)
				if err == nil {
					mac = device.Attrs().HardwareAddr
				}
				return err
			})
		}
		return mac
	}
	link.HostMAC, link.MAC = mac(w.node.Namespace, h.name), mac(h.ns, "eth0")
	if err != nil {
		err = fmt.Errorf("describing the link of pod %s: %w", h.name, err)
	}
	return link, err
}
