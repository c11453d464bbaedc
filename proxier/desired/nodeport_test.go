package desired

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

func nodePorts(n int32) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.Ports[0].NodePort = n }
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		all = append(all, netip.MustParseAddr(t))
	}
	return all
}

func TestNodePort(t *testing.T) {
	endpoints := slice(on("node-1", "10.244.1.1", "ready"), on("node-2", "10.244.2.1", "ready"))
	kind := func(k v1.ServiceType) func(*v1.Service) {
		return func(s *v1.Service) { s.Spec.Type, s.Spec.ExternalIPs = k, nil }
	}
	for _, test := range []struct {
		name    string
		service *v1.Service
		want    string // the virtual servers at the node's addresses
	}{
		{"Cluster", load(kind(v1.ServiceTypeNodePort), nodePorts(30080)), `
10.0.0.11:30080/tcp masquerade 10.244.1.1:8080 10.244.2.1:8080
10.0.0.12:30080/tcp masquerade 10.244.1.1:8080 10.244.2.1:8080`},
		{"Local", load(kind(v1.ServiceTypeNodePort), nodePorts(30080), external("Local")), `
10.0.0.11:30080/tcp from-node 10.244.1.1:8080
10.0.0.12:30080/tcp from-node 10.244.1.1:8080`},
		{"of a balancer", load(nodePorts(30080)), `
10.0.0.11:30080/tcp masquerade 10.244.1.1:8080 10.244.2.1:8080
10.0.0.12:30080/tcp masquerade 10.244.1.1:8080 10.244.2.1:8080`},
		{"none was allocated", load(kind(v1.ServiceTypeNodePort)), ""},
		{"left over from another type", load(kind(v1.ServiceTypeClusterIP), nodePorts(30080)), ""},
	} {
		o := options()
		o.NodePorts = addrs("10.0.0.11", "10.0.0.12")
		got := Compute(web, test.service, []*discovery.EndpointSlice{endpoints}, o)
		var b strings.Builder
		for _, v := range got.Virtuals {
			if !v.Binds() {
				fmt.Fprintf(&b, "\n%v %s", v.Key, v.Source)
				for _, r := range v.Reals {
					fmt.Fprintf(&b, " %v", r)
				}
			}
		}
		if diff := cmp.Diff(test.want, b.String()); diff != "" || len(got.Refused) > 0 {
			t.Errorf("%s (-want +got):\n%s\nrefused %v", test.name, diff, got.Refused)
		}
	}
}

func TestNodePortWithoutAnAddress(t *testing.T) {
	got := Compute(web, load(nodePorts(30080)), nil, options())
	if len(got.Refused) != 1 || got.Refused[0].Reason != NoNodeAddress || len(got.Virtuals) != 3 {
		t.Errorf("refused %v; virtual servers:\n%s", got.Refused, text(got))
	}
}

func TestNodePortAddresses(t *testing.T) {
	has := addrs("127.0.0.1", "10.0.0.11", "192.168.5.1", "169.254.1.1", "203.0.113.1", "::1", "fe80::1", "fd00::11")
	primary := addrs("10.0.0.11", "198.51.100.7", "fd00::11") // the second one is on no interface
	for words, want := range map[string]string{
		"":                              "[10.0.0.11 fd00::11]",
		"primary":                       "[10.0.0.11 fd00::11]",
		"192.168.0.0/16,203.0.113.1/32": "[192.168.5.1 203.0.113.1]",
		"0.0.0.0/0":                     "[10.0.0.11 192.168.5.1 203.0.113.1]",
		"::/0":                          "[fd00::11]",
		"172.16.0.0/12":                 "[]",
	} {
		n, err := ParseNodePorts(strings.FieldsFunc(words, func(r rune) bool { return r == ',' }))
		if got := fmt.Sprint(n.Select(has, primary)); err != nil || got != want {
			t.Errorf("%q selects %s, error %v; want %s", words, got, err, want)
		}
	}
	for words, want := range map[string]string{
		"127.0.0.0/8":        "loopback, where IPVS cannot serve NodePorts",
		"::1/128":            "loopback",
		"primary,10.0.0.0/8": "stands alone",
		"10.0.0.0/8,primary": "stands alone",
		"10.0.0.11":          "neither the word primary nor a prefix",
	} {
		if _, err := ParseNodePorts(strings.Split(words, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gave the error %v, want one that says %q", words, err, want)
		}
	}
}
