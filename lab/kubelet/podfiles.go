package kubelet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	roots "github.com/hitless/hitless/lab/container"
	"github.com/hitless/hitless/lab/topology"
)

// clusterDomain is the domain of the cluster's DNS.
const clusterDomain = "cluster.local"

// hostname is the host name of the pod's containers.
func (p *pod) hostname() string {
	switch spec := &p.object.Spec; {
	case spec.HostNetwork:
		return p.k.name
	case spec.Hostname != "":
		return spec.Hostname
	}
	const most = 63 // of a host name
	return strings.TrimRight(p.name[:min(len(p.name), most)], "-.")
}

// files are those that the kubelet writes into the root of each container.
func (p *pod) files() []roots.File {
	return []roots.File{
		{Path: "/etc/hostname", Text: p.hostname() + "\n"},
		{Path: "/etc/hosts", Text: p.hosts()},
		{Path: "/etc/resolv.conf", Text: p.resolvConf()},
	}
}

func (p *pod) hosts() string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	name := p.hostname()
	if p.object.Spec.Subdomain != "" {
		name = fmt.Sprintf("%s.%s.%s.svc.%s\t%s", name, p.object.Spec.Subdomain, p.namespace, clusterDomain, name)
	}
	for _, a := range p.addrs {
		fmt.Fprintf(&b, "%s\t%s\n", a, name)
	}
	if len(p.object.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range p.object.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return b.String()
}

// resolvConf follows the kubelet's network/dns package. A node of the lab has no name server of its own.
func (p *pod) resolvConf() string {
	var servers, searches, options []string
	spec := &p.object.Spec
	if spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet || spec.DNSPolicy == corev1.DNSClusterFirst && !spec.HostNetwork {
		servers = []string{p.k.Workloads.DNS}
		searches = []string{p.namespace + ".svc." + clusterDomain, "svc." + clusterDomain, clusterDomain}
		options = []string{"ndots:5"}
	}
	if more := spec.DNSConfig; more != nil {
		servers, searches = merge(servers, more.Nameservers), merge(searches, more.Searches)
		for _, o := range more.Options {
			text := o.Name
			if o.Value != nil {
				text += ":" + *o.Value
			}
			options = append(slices.DeleteFunc(options, func(known string) bool {
				name, _, _ := strings.Cut(known, ":")
				return name == o.Name
			}), text)
		}
	}
	var b strings.Builder
	if len(searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(searches, " "))
	}
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(options, " "))
	}
	return b.String()
}

// merge appends what is not there yet.
func merge(all, more []string) []string {
	for _, text := range more {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// hostPorts are the ports of the node that lead to the pod; with hostNetwork its ports are the node's.
func (p *pod) hostPorts() (ports []topology.HostPort) {
	if p.object.Spec.HostNetwork {
		return nil
	}
	numbers := map[corev1.Protocol]uint8{corev1.ProtocolTCP: unix.IPPROTO_TCP, corev1.ProtocolUDP: unix.IPPROTO_UDP, corev1.ProtocolSCTP: unix.IPPROTO_SCTP}
	for _, c := range p.all() {
		for _, port := range c.spec.Ports {
			if port.HostPort == 0 {
				continue
			}
			addr, _ := netip.ParseAddr(port.HostIP) // checked by the API server; empty for all
			ports = append(ports, topology.HostPort{Addr: addr, Protocol: numbers[port.Protocol], Port: uint16(port.HostPort),
				To: netip.AddrPortFrom(p.addr, uint16(port.ContainerPort))})
		}
	}
	return ports
}
