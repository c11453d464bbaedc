//go:build linux

package routing

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"github.com/hitless/hitless/record"
)

// Each case has a name of its own, a client that exists, features, and a target that both families resolve to different addresses.
func TestCasesAreComplete(t *testing.T) {
	all := slices.Clone(Cases)
	for _, c := range Changes {
		all = append(all, c.Cases...)
	}
	names := map[string]bool{}
	clients := []string{"node"}
	for _, h := range hosts() {
		clients = append(clients, h.name)
	}
	for _, q := range all {
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

// No two requests of UDP have one port, so that each is a flow of its own. Of ports at random, 500 have four pairs on average.
func TestRequestsAreFlowsOfTheirOwn(t *testing.T) {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	go func() {
		buffer := make([]byte, 16)
		for _, from, err := u.ReadFrom(buffer); err == nil; _, from, err = u.ReadFrom(buffer) {
			_, _ = u.WriteTo([]byte(from.String()), from)
		}
	}()
	seen := map[string]bool{}
	for range 500 {
		from, err := ask("udp", netip.MustParseAddrPort(u.LocalAddr().String()))
		if err != nil || seen[from] {
			t.Fatalf("a request comes from %s, as an earlier one: %v", from, err)
		}
		seen[from] = true
	}
}

// The ports of SCTP are those of UDP: not every kernel that runs this test has SCTP.
func TestPortsOfRequestsDoNotRepeat(t *testing.T) {
	seen := map[int]bool{}
	for range clientPorts {
		port := clientPort()
		if seen[port] || port < firstPort || port >= firstPort+clientPorts {
			t.Fatalf("port %d of a request is another's, or in the range of others", port)
		}
		seen[port] = true
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
