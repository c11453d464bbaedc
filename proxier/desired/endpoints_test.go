package desired

import (
	"strings"
	"testing"

	discovery "k8s.io/api/discovery/v1"
)

// KEP-2433 and KEP-3015: node hints before zone hints, all ready endpoints or none, and never for terminating ones.
func TestHints(t *testing.T) {
	hinted := func(e discovery.Endpoint, zone, node string) discovery.Endpoint {
		e.Hints = &discovery.EndpointHints{}
		if zone != "" {
			e.Hints.ForZones = []discovery.ForZone{{Name: zone}}
		}
		if node != "" {
			e.Hints.ForNodes = []discovery.ForNode{{Name: node}}
		}
		return e
	}
	a, b, c := endpointOn("node-1", "10.244.1.1", "ready"), endpointOn("node-2", "10.244.2.1", "ready"), endpointOn("node-3", "10.244.3.1", "ready")
	for _, test := range []struct {
		name      string
		zone      string
		endpoints []discovery.Endpoint
		want      string // third octets of the endpoints of the cluster IP
	}{
		{"no hints", "z1", []discovery.Endpoint{a, b, c}, "1 2 3"},
		{"zone hints", "z1", []discovery.Endpoint{hinted(a, "z1", ""), hinted(b, "z1", ""), hinted(c, "z2", "")}, "1 2"},
		{"node and zone hints", "z1", []discovery.Endpoint{hinted(a, "z1", "node-1"), hinted(b, "z1", "node-2"), hinted(c, "z2", "node-3")}, "1"},
		{"node hints for other nodes", "z1", []discovery.Endpoint{hinted(b, "z1", "node-2"), hinted(c, "z2", "node-3")}, "2"},
		{"one endpoint without hints", "z1", []discovery.Endpoint{hinted(a, "z1", ""), b, hinted(c, "z2", "")}, "1 2 3"},
		{"an unready endpoint without hints", "z1", []discovery.Endpoint{hinted(a, "z1", ""), endpointOn("node-2", "10.244.2.1", "unready"), hinted(c, "z2", "")}, "1"},
		{"zone hints for other zones", "z9", []discovery.Endpoint{hinted(a, "z1", ""), hinted(b, "z2", "")}, "1 2"},
		{"node without a zone", "", []discovery.Endpoint{hinted(a, "z1", ""), hinted(b, "z2", "")}, "1 2"},
		{"hints of terminating endpoints", "z1", []discovery.Endpoint{hinted(endpointOn("node-1", "10.244.1.1", "draining"), "z1", ""), hinted(endpointOn("node-2", "10.244.2.1", "draining"), "z2", "")}, "1 2"},
	} {
		o := options()
		o.Zone = test.zone
		v := Compute(web, loadBalancerService(), []*discovery.EndpointSlice{slice(test.endpoints...)}, o).Virtuals[0]
		var got []string
		for _, r := range v.Reals {
			got = append(got, strings.Split(r.String(), ".")[2])
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: served by %s, want %s", test.name, text, test.want)
		}
	}
	local := loadBalancerService(external("Local"))
	o := options()
	o.Zone = "z1"
	got := Compute(web, local, []*discovery.EndpointSlice{slice(hinted(a, "z2", ""), hinted(b, "z1", ""))}, o)
	if v := got.Virtuals[1]; len(v.Reals) != 1 || v.Reals[0].String() != "10.244.1.1:8080" || v.Drop {
		t.Errorf("policy Local must ignore hints: %v", v.Reals)
	}
}
