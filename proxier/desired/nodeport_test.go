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
	endpoints := slice(endpointOn("node-1", "10.244.1.1", "ready"), endpointOn("node-2", "10.244.2.1", "ready"))
	kind := func(k v1.ServiceType) func(*v1.Service) {
		return func(s *v1.Service) { s.Spec.Type, s.Spec.ExternalIPs = k, nil }
	}
	for _, test := range []struct {
		name    string
		service *v1.Service
		want    string // virtual servers at node addresses
	}{
		{"Cluster", loadBalancerService(kind(v1.ServiceTypeNodePort), nodePorts(30080)), `
10.0.0.11:30080/tcp masquerade 10.244.1.1:8080 10.244.2.1:8080
10.0.0.12:30080/tcp masquerade 10.244.1.1:8080 10.244.2.1:8080`},
		{"Local", loadBalancerService(kind(v1.ServiceTypeNodePort), nodePorts(30080), external("Local")), `
10.0.0.11:30080/tcp from-node 10.244.1.1:8080
10.0.0.12:30080/tcp from-node 10.244.1.1:8080`},
		{"LoadBalancer", loadBalancerService(nodePorts(30080)), `
10.0.0.11:30080/tcp masquerade 10.244.1.1:8080 10.244.2.1:8080
10.0.0.12:30080/tcp masquerade 10.244.1.1:8080 10.244.2.1:8080`},
		{"no NodePort allocated", loadBalancerService(kind(v1.ServiceTypeNodePort)), ""},
		{"stale nodePort of another type", loadBalancerService(kind(v1.ServiceTypeClusterIP), nodePorts(30080)), ""},
	} {
		o := options()
		o.NodePortAddrs = addrs("10.0.0.11", "10.0.0.12")
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

func TestNodePortWithoutNodeAddress(t *testing.T) {
	got := Compute(web, loadBalancerService(nodePorts(30080)), nil, options())
	if len(got.Refused) != 1 || got.Refused[0].Reason != NoNodeAddress || len(got.Virtuals) != 3 {
		t.Errorf("refused %v; virtual servers:\n%s", got.Refused, format(got))
	}
}

func TestNodePortAddresses(t *testing.T) {
	has := addrs("127.0.0.1", "10.0.0.11", "192.168.5.1", "169.254.1.1", "203.0.113.1", "::1", "fe80::1", "fd00::11")
	primary := addrs("10.0.0.11", "198.51.100.7", "fd00::11") // the second one is on no device
	for words, want := range map[string]string{
		"":                              "[10.0.0.11 fd00::11]",
		"primary":                       "[10.0.0.11 fd00::11]",
		"192.168.0.0/16,203.0.113.1/32": "[192.168.5.1 203.0.113.1]",
		"0.0.0.0/0":                     "[10.0.0.11 192.168.5.1 203.0.113.1]",
		"::/0":                          "[fd00::11]",
		"172.16.0.0/12":                 "[]",
	} {
		n, err := ParseNodePortAddresses(strings.FieldsFunc(words, func(r rune) bool { return r == ',' }))
		if got := fmt.Sprint(n.Select(has, primary)); err != nil || got != want {
			t.Errorf("%q selects %s, error %v; want %s", words, got, err, want)
		}
	}
	for words, want := range map[string]string{
		"127.0.0.0/8":        "127.0.0.0/8",
		"::1/128":            "::1/128",
		"primary,10.0.0.0/8": "primary",
		"10.0.0.0/8,primary": "primary",
		"10.0.0.11":          "10.0.0.11",
	} {
		if _, err := ParseNodePortAddresses(strings.Split(words, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gave the error %v, want one that contains %q", words, err, want)
		}
	}
}
