//go:build linux

package routing

import (
	"math"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"github.com/hitless/hitless/record"
)

// Each case has a name of its own, a client that exists, features, and a target that both families resolve to different addresses.
func TestCasesAreComplete(t *testing.T) {
	names := map[string]bool{}
	clients := []string{"node"}
	for _, h := range hosts() {
		clients = append(clients, h.name)
	}
	for _, q := range all() {
		if names[q.Name] || len(q.Features) == 0 || q.Want == "" || !slices.Contains(clients, q.Client) {
			t.Errorf("%+v is not complete, or its name is taken", q)
		}
		names[q.Name] = true
		protocol, four, err4 := IPv4.resolve(q.Target)
		_, six, err6 := IPv6.resolve(q.Target)
		if err4 != nil || err6 != nil || !six.Addr().Is6() || !q.Both && !four.Addr().Is4() || protocol == "" {
			t.Errorf("%s: %s is %v or %v: %v %v", q.Name, q.Target, four, six, err4, err6)
		}
	}
	if _, _, err := IPv4.resolve("nowhere/1:80"); err == nil {
		t.Error("an unknown target has an address")
	}
}

// The Services of a family have addresses of that family, and number 1 to 61 at their end.
func TestServicesHaveTheirFamily(t *testing.T) {
	for f, protocol := range map[Family]v1.IPFamily{IPv4: v1.IPv4Protocol, IPv6: v1.IPv6Protocol} {
		services := 0
		for _, o := range f.Services() {
			s, is := o.(*v1.Service)
			if !is {
				continue
			}
			services++
			if s.Spec.IPFamilies[0] != protocol || strings.Contains(s.Spec.ClusterIP, ":") != (f == IPv6) {
				t.Errorf("%s: %s has %v and %s", f, s.Name, s.Spec.IPFamilies, s.Spec.ClusterIP)
			}
			for _, r := range s.Spec.LoadBalancerSourceRanges {
				if strings.Contains(r, ":") != (f == IPv6) || r == "" {
					t.Errorf("%s: %s admits %q", f, s.Name, r)
				}
			}
		}
		if services < 30 {
			t.Errorf("%s has %d Services", f, services)
		}
	}
}

// kube-proxy obeys zone hints only where both annotations ask for it, or by default since v1.31; other proxies read trafficDistribution.
func TestServicesWithHintsAskForThem(t *testing.T) {
	services, hinted := map[string]*v1.Service{}, 0
	for _, o := range IPv4.Services() {
		switch o := o.(type) {
		case *v1.Service:
			services[o.Name] = o
		case *discovery.EndpointSlice:
			of := func(has func(*discovery.EndpointHints) bool) bool {
				return slices.ContainsFunc(o.Endpoints, func(e discovery.Endpoint) bool { return e.Hints != nil && has(e.Hints) })
			}
			s := services[o.Labels[discovery.LabelServiceName]]
			nodes, zones := of(func(h *discovery.EndpointHints) bool { return len(h.ForNodes) > 0 }), of(func(h *discovery.EndpointHints) bool { return len(h.ForZones) > 0 })
			how := s.Spec.TrafficDistribution
			annotated := s.Annotations["service.kubernetes.io/topology-aware-hints"] == "Auto" && s.Annotations["service.kubernetes.io/topology-mode"] == "Auto"
			switch {
			case nodes && (how == nil || *how != "PreferSameNode"), !nodes && zones && (!annotated || how == nil || *how != "PreferClose"), !zones && (annotated || how != nil):
				t.Errorf("%s has hints for nodes %v and zones %v, the annotations %v and trafficDistribution %v", s.Name, nodes, zones, s.Annotations, how)
			case zones:
				hinted++
			}
		}
	}
	if hinted < 6 {
		t.Errorf("%d Services have hints", hinted)
	}
}

// all are the cases in the order of a run.
func all() []Case {
	all := slices.Clone(Cases)
	for _, c := range Changes {
		all = append(all, c.Cases...)
	}
	return all
}

func negative(q Case) bool {
	return slices.Contains([]string{"refused", "dropped", Blocked}, q.Promise())
}

// After a change, connections fail because of it only if they were answered before: the same client reached the same address last time.
func TestAChangeAloneCanStopAClient(t *testing.T) {
	last, stopped := map[string]Case{}, 0
	before := len(Cases)
	for i, q := range all() {
		way := q.Client + " " + q.Target
		if was, asked := last[way]; i >= before && negative(q) {
			if stopped++; !asked || negative(was) {
				t.Errorf("%s: %s did not work before (%s), so that no change is needed to stop it", q.Name, way, was.Name)
			}
		}
		last[way] = q
	}
	if stopped < 5 {
		t.Errorf("%d cases want a change to stop a client", stopped)
	}
}

// A cluster IP is promised inside of the cluster only: from outside, nothing can be reached there with a proxy that does nothing.
func TestClusterIPsAreAskedFromInside(t *testing.T) {
	for _, q := range all() {
		if outside := q.Client == "client" || q.Client == "stranger"; outside && !q.Own && strings.HasPrefix(q.Target, "cluster") {
			t.Errorf("%s: from %s to %s", q.Name, q.Client, q.Target)
		}
	}
}

// Only pods of other nodes must see the node's address (Keeps): a case that wants it has such a pod, or a pod that reaches itself, which
// would not answer its own address.
func TestTheNodesAddressIsSeenElsewhere(t *testing.T) {
	for _, q := range all() {
		if elsewhere := strings.Contains(q.Want, "r") || q.Want == "one"; q.Source == "node" && !elsewhere && q.Want != q.Client {
			t.Errorf("%s wants the node's address, and %s is on the node", q.Name, q.Want)
		}
	}
}

// A proxy that chooses pods at random must not fail by chance: connections that all miss a pod are rare, over all cases of both families.
func TestEnoughConnectionsReachEachPod(t *testing.T) {
	chance := 0.0
	for _, q := range all() {
		if pods := float64(len(strings.Fields(q.Want))); !negative(q) && !strings.HasPrefix(q.Target, "check!") && pods > 1 {
			chance += 2 * pods * math.Pow(1-1/pods, attempts)
		}
	}
	if chance == 0 || chance > 1e-4 {
		t.Errorf("a run of both families misses a pod with probability %.2g", chance)
	}
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		check record.Check
		holds bool
	}{
		{record.Check{Want: "a b", Got: "a b"}, true},
		{record.Check{Want: "a b", Got: "a"}, false},
		{record.Check{Want: "a", Got: "a dropped"}, false},
		{record.Check{Want: "one", Got: "b"}, true},
		{record.Check{Want: "one", Got: "a b"}, false},
		{record.Check{Want: "one", Got: "dropped"}, false},
		{record.Check{Want: "dropped", Got: "refused"}, false},
		{record.Check{Want: Blocked, Got: "refused"}, true},
		{record.Check{Want: Blocked, Got: "host"}, false},
		{record.Check{Want: "503", Got: "503, weight 0"}, true},
		{record.Check{Want: "503", Got: "200, weight 1"}, false},
		{record.Check{Want: "503", Got: "dropped"}, false},
		{record.Check{Want: "a", Got: "a", Source: "itself", Seen: "itself"}, true},
		{record.Check{Want: "a", Got: "a", Source: "itself", Seen: "node"}, false},
		{record.Check{Want: "a", Got: "a", Source: "itself", Seen: "itself node"}, false},
		{record.Check{Want: "a", Got: record.Unsupported}, false},
	} {
		if Holds(c.check) != c.holds {
			t.Errorf("%+v holds: %v", c.check, !c.holds)
		}
	}
}

// Pods of the node may see the client's address; pods of other nodes see the node's.
func TestKeeps(t *testing.T) {
	for _, c := range []struct {
		check record.Check
		keeps bool
	}{
		{record.Check{Want: "a r", Got: "a r", Source: "node", Seen: "itself node", SeenElsewhere: "node"}, true},
		{record.Check{Want: "a r", Got: "a r", Source: "node", Seen: "itself", SeenElsewhere: "itself"}, false},
		{record.Check{Want: "a b", Got: "a b", Source: "node", Seen: "itself"}, true},
		{record.Check{Want: "a b", Got: "a", Source: "node", Seen: "itself"}, false},
		{record.Check{Want: "a", Got: "a", Source: "itself", Seen: "node"}, false},
	} {
		if Keeps(c.check) != c.keeps {
			t.Errorf("%+v keeps the promise: %v", c.check, !c.keeps)
		}
	}
}

func TestFamiliesAreRead(t *testing.T) {
	for _, text := range []string{"", "ipv5", "dual", "IPv4"} {
		if f, err := ParseFamily(text); err == nil {
			t.Errorf("%q is the family %s", text, f)
		}
	}
	if f, err := ParseFamily("ipv6"); err != nil || f != IPv6 {
		t.Errorf("ipv6 is %s: %v", f, err)
	}
}

// The other Services have addresses and names of their own, and endpoints.
func TestOtherServicesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for i := range MaxOthers {
		objects := other(i)
		service := objects[0].(*v1.Service)
		if seen[service.Name] || seen[service.Spec.ClusterIP] || service.Spec.ClusterIP != otherAddr(i).String() {
			t.Fatalf("Service %d is %s at %s", i, service.Name, service.Spec.ClusterIP)
		}
		seen[service.Name], seen[service.Spec.ClusterIP] = true, true
		if slice := objects[len(objects)-1].(*discovery.EndpointSlice); len(slice.Endpoints) < 2 {
			t.Fatalf("%s has %d endpoints", service.Name, len(slice.Endpoints))
		}
	}
	if endpointOf(1) == endpointOf(2) {
		t.Error("a change does not change the endpoint")
	}
}
