package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier"
	"github.com/hitless/hitless/proxier/health"
	"github.com/hitless/hitless/proxier/kernel"
)

// changeFaults are faults of what the proxier writes: operations on the kernel, and health checks. All are permanent.
var changeFaults = map[string]func(*injection, fault) error{
	"no-masquerade":         lacking(kernel.Masquerade),
	"no-cluster-masquerade": lacking(kernel.OffCluster),
	"no-hairpin":            lacking(kernel.Hairpin),
	"no-isolation":          lacking(kernel.Isolated),
	"no-drop":               lacking(kernel.Drop),
	"drop-empty":            (*injection).dropEmpty,
	"affinity-inside":       operations(affinityInside),
	"masquerade-local":      instead(kernel.FromNode, kernel.Masquerade),
	"ranges-everywhere":     (*injection).rangesEverywhere,
	"no-cluster-ips":        operations(noClusterIPs),
	"keep-endpoints":        operations(keepEndpoints),
	"never-zero":            operations(neverZero),
	"cut-endpoints":         (*injection).cutEndpoints,
	"ignore-weight":         operations(ignoreWeight),
	"late-deletion":         (*injection).lateDeletion,
	"ignore-damage":         func(i *injection, _ fault) error { i.blind = true; return nil },
	"close-node":            func(i *injection, _ fault) error { return nft(closeNode) },
	"health-always":         checks(func(_ *injection, _ types.NamespacedName, local int) int { return max(1, local) }),
	"health-never":          checks(func(*injection, types.NamespacedName, int) int { return 0 }),
	"health-of-all-nodes": checks(func(i *injection, name types.NamespacedName, _ int) int {
		return i.count(name, func(discovery.Endpoint) bool { return true })
	}),
	"health-of-terminating":  checks(func(i *injection, name types.NamespacedName, _ int) int { return i.count(name, i.here) }),
	"ignore-removal-of-node": (*injection).ignoreRemoval,
}

// closeNode is a ruleset that drops connections to a program of the node.
const closeNode = "add table inet faulty-node\nadd chain inet faulty-node in { type filter hook prerouting priority -310; }\nadd rule inet faulty-node in tcp dport 2222 drop\n"

// operations is a fault that replaces each operation on the kernel.
func operations(change func(kernel.Op) []kernel.Op) func(*injection, fault) error {
	return func(i *injection, _ fault) error { i.replacing(change); return nil }
}

// replacing replaces each operation, after the faults that were injected before.
func (i *injection) replacing(change func(kernel.Op) []kernel.Op) {
	change = forced{}.keeping(change)
	before := i.change
	if before == nil {
		i.change = change
		return
	}
	i.change = func(op kernel.Op) (ops []kernel.Op) {
		for _, o := range before(op) {
			ops = append(ops, change(o)...)
		}
		return ops
	}
}

// forced are elements that a fault has added. The proxier reads its sets again and takes them for damage, so its removals of them are
// left out.
type forced map[kernel.Element]bool

// keeping returns a fault's replacement of operations that keeps what the fault has added, until the fault removes it.
func (f forced) keeping(change func(kernel.Op) []kernel.Op) func(kernel.Op) []kernel.Op {
	return func(op kernel.Op) []kernel.Op {
		own, is := op.(kernel.ChangeSets)
		if is {
			kept := kernel.ChangeSets{Add: own.Add, Remove: slices.DeleteFunc(slices.Clone(own.Remove), func(e kernel.Element) bool { return f[e] })}
			if len(kept.Add)+len(kept.Remove) == 0 {
				return nil
			}
			op = kept
		}
		ops := change(op)
		for _, o := range ops {
			changed, _ := o.(kernel.ChangeSets)
			for _, e := range changed.Add {
				if !slices.Contains(own.Add, e) {
					f[e] = true
				}
			}
			for _, e := range changed.Remove {
				delete(f, e)
			}
		}
		return ops
	}
}

// lacking is a fault that leaves a set empty.
func lacking(set kernel.Set) func(*injection, fault) error {
	return elements(func(e kernel.Element) (kernel.Element, bool) { return e, e.Set != set })
}

// instead is a fault that uses a set in place of another.
func instead(of, other kernel.Set) func(*injection, fault) error {
	return elements(func(e kernel.Element) (kernel.Element, bool) {
		if e.Set == of {
			e.Set = other
		}
		return e, true
	})
}

// elements is a fault that changes or leaves out elements, both where they are added and where they are removed.
func elements(change func(kernel.Element) (kernel.Element, bool)) func(*injection, fault) error {
	all := func(old []kernel.Element) (now []kernel.Element) {
		for _, e := range old {
			if e, keep := change(e); keep && !slices.Contains(now, e) {
				now = append(now, e)
			}
		}
		return now
	}
	return operations(func(op kernel.Op) []kernel.Op {
		o, is := op.(kernel.ChangeSets)
		if !is {
			return []kernel.Op{op}
		}
		if o = (kernel.ChangeSets{Add: all(o.Add), Remove: all(o.Remove)}); len(o.Add)+len(o.Remove) == 0 {
			return nil
		}
		return []kernel.Op{o}
	})
}

// rangesEverywhere applies the source ranges of a Service's load balancer address to its node ports and cluster IPs too.
func (i *injection) rangesEverywhere(fault) error {
	all := func(old []kernel.Element) (now []kernel.Element) {
		for _, e := range old {
			now = append(now, e)
			if e.Set != kernel.Restricted && e.Set != kernel.Allowed {
				continue
			}
			for _, key := range i.otherKeys(e.Key) {
				now = append(now, kernel.Element{Set: e.Set, Key: key, Source: e.Source})
			}
		}
		return now
	}
	i.replacing(func(op kernel.Op) []kernel.Op {
		if o, is := op.(kernel.ChangeSets); is {
			return []kernel.Op{kernel.ChangeSets{Add: all(o.Add), Remove: all(o.Remove)}}
		}
		return []kernel.Op{op}
	})
	return nil
}

// otherKeys are the node port and the cluster IP of the Service with a load balancer address.
func (i *injection) otherKeys(at kernel.Key) (keys []kernel.Key) {
	for _, name := range i.parts.Source.Names() {
		s := i.parts.Source.Service(name)
		if s == nil || !slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool { return in.IP == at.Addr.String() }) {
			continue
		}
		for _, p := range s.Spec.Ports {
			for _, node := range i.parts.Source.NodeAddresses() {
				if node.Is4() == at.Addr.Is4() {
					keys = append(keys, kernel.Key{Addr: node, Protocol: at.Protocol, Port: uint16(p.NodePort)})
				}
			}
			if ip, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
				keys = append(keys, kernel.Key{Addr: ip, Protocol: at.Protocol, Port: uint16(p.Port)})
			}
		}
	}
	return keys
}

// dropEmpty drops connections to a Service without an endpoint instead of refusing them.
func (i *injection) dropEmpty(fault) error {
	empty := map[kernel.Key]bool{}
	i.replacing(func(op kernel.Op) []kernel.Op {
		ops := []kernel.Op{op}
		switch o := op.(type) {
		case kernel.AddVirtual:
			empty[o.Virtual.Key] = true
			ops = append(ops, kernel.ChangeSets{Add: []kernel.Element{{Set: kernel.Drop, Key: o.Virtual.Key}}})
		case kernel.AddReal:
			if empty[o.Key] {
				delete(empty, o.Key)
				ops = append(ops, kernel.ChangeSets{Remove: []kernel.Element{{Set: kernel.Drop, Key: o.Key}}})
			}
		}
		return ops
	})
	return nil
}

// isClusterIP reports whether an address is in the ranges of cluster IPs.
func isClusterIP(a netip.Addr) bool {
	return netip.MustParsePrefix("10.96.0.0/16").Contains(a) || netip.MustParsePrefix("fd00:96::/64").Contains(a)
}

// noClusterIPs makes no cluster IP local.
func noClusterIPs(op kernel.Op) []kernel.Op {
	bind, binds := op.(kernel.Bind)
	unbind, unbinds := op.(kernel.Unbind)
	if binds && isClusterIP(bind.Addr) || unbinds && isClusterIP(unbind.Addr) {
		return nil
	}
	return []kernel.Op{op}
}

// affinityInside keeps the clients of cluster IPs at their endpoint, and no others.
func affinityInside(op kernel.Op) []kernel.Op {
	switch o := op.(type) {
	case kernel.AddVirtual:
		if !isClusterIP(o.Virtual.Addr) {
			o.Virtual.Affinity = 0
		}
		op = o
	case kernel.UpdateVirtual:
		if !isClusterIP(o.Virtual.Addr) {
			o.Virtual.Affinity = 0
		}
		op = o
	}
	return []kernel.Op{op}
}

// keepEndpoints neither drains nor deletes a real server.
func keepEndpoints(op kernel.Op) []kernel.Op {
	if _, deletes := op.(kernel.DeleteReal); deletes {
		return nil
	}
	return neverZero(op)
}

func neverZero(op kernel.Op) []kernel.Op {
	if o, is := op.(kernel.SetWeight); is && o.Weight == 0 {
		return nil
	}
	return []kernel.Op{op}
}

// ignoreWeight never gives a drained real server new connections again.
func ignoreWeight(op kernel.Op) []kernel.Op {
	if o, is := op.(kernel.SetWeight); is && o.Weight > 0 {
		return nil
	}
	return []kernel.Op{op}
}

// cutEndpoints deletes real servers at once that must drain. Their connections end.
func (i *injection) cutEndpoints(fault) error {
	type server struct {
		key  kernel.Key
		real netip.AddrPort
	}
	gone := map[server]bool{}
	i.replacing(func(op kernel.Op) []kernel.Op {
		switch o := op.(type) {
		case kernel.SetWeight:
			s := server{o.Key, o.Real}
			if o.Weight == 0 {
				gone[s] = true
				return []kernel.Op{kernel.DeleteReal{Key: o.Key, Real: o.Real}}
			}
			if gone[s] {
				delete(gone, s)
				return []kernel.Op{kernel.AddReal(o)}
			}
		case kernel.DeleteReal:
			if s := (server{o.Key, o.Real}); gone[s] {
				delete(gone, s)
				return nil
			}
		}
		return []kernel.Op{op}
	})
	return nil
}

// deletionDelay is longer than the time for which the scenario `recreate` has no Service.
const deletionDelay = 8 * time.Second

// lateDeletion drains and deletes late, and then also what was added again.
func (i *injection) lateDeletion(f fault) error {
	i.replacing(func(op kernel.Op) []kernel.Op {
		switch o := op.(type) {
		case kernel.SetWeight:
			if o.Weight > 0 {
				return []kernel.Op{op}
			}
		case kernel.DeleteReal, kernel.DeleteVirtual, kernel.Unbind:
		default:
			return []kernel.Op{op}
		}
		time.AfterFunc(deletionDelay, func() {
			if _, err := i.applyAll([]kernel.Op{op}); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", f.kind, err) // it may be gone by now
			}
		})
		return nil
	})
	return nil
}

// checks is a fault that changes the number of local endpoints of health checks.
func checks(count func(i *injection, name types.NamespacedName, local int) int) func(*injection, fault) error {
	return func(i *injection, _ fault) error {
		i.parts.HealthChecks = counted{i.parts.HealthChecks, func(name types.NamespacedName, local int) int { return count(i, name, local) }}
		return nil
	}
}

type counted struct {
	proxier.HealthChecks
	count func(types.NamespacedName, int) int
}

func (c counted) Set(name types.NamespacedName, port uint16, local int) {
	c.HealthChecks.Set(name, port, c.count(name, local))
}

// count counts the serving endpoints of a Service.
func (i *injection) count(name types.NamespacedName, counts func(discovery.Endpoint) bool) (n int) {
	for _, s := range i.parts.Source.Slices(name) {
		for _, e := range s.Endpoints {
			if serves(&e) && counts(e) {
				n++
			}
		}
	}
	return n
}

func (i *injection) here(e discovery.Endpoint) bool {
	return e.NodeName != nil && *e.NodeName == i.node
}

// ignoreRemoval answers health checks of a node that is being removed. The proxier itself must not serve them.
func (i *injection) ignoreRemoval(fault) error {
	answers := i.parts.Node.Handler()
	_, err := health.Serve("0.0.0.0:10256", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			r.URL.Path = "/livez"
		}
		answers.ServeHTTP(w, r)
	}))
	return err
}
