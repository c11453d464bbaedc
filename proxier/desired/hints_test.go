package desired

import (
	"strings"
	"testing"

	discovery "k8s.io/api/discovery/v1"
)

// The rules of KEP-2433 and KEP-3015: hints of nodes before hints of zones, all or nothing, and never for those that
// terminate.
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
	a, b, c := on("node-1", "10.244.1.1", "ready"), on("node-2", "10.244.2.1", "ready"), on("node-3", "10.244.3.1", "ready")
	for _, test := range []struct {
		name      string
		zone      string
		endpoints []discovery.Endpoint
		want      string // for the cluster IP
	}{
		{"none", "z1", []discovery.Endpoint{a, b, c}, "1 2 3"},
		{"of zones", "z1", []discovery.Endpoint{hinted(a, "z1", ""), hinted(b, "z1", ""), hinted(c, "z2", "")}, "1 2"},
		{"of nodes and zones", "z1", []discovery.Endpoint{hinted(a, "z1", "node-1"), hinted(b, "z1", "node-2"), hinted(c, "z2", "node-3")}, "1"},
		{"of nodes, but none for this one", "z1", []discovery.Endpoint{hinted(b, "z1", "node-2"), hinted(c, "z2", "node-3")}, "2"},
		{"one has none", "z1", []discovery.Endpoint{hinted(a, "z1", ""), b, hinted(c, "z2", "")}, "1 2 3"},
		{"one that is not ready has none", "z1", []discovery.Endpoint{hinted(a, "z1", ""), on("node-2", "10.244.2.1", "unready"), hinted(c, "z2", "")}, "1"},
		{"none for this zone", "z9", []discovery.Endpoint{hinted(a, "z1", ""), hinted(b, "z2", "")}, "1 2"},
		{"a node without a zone", "", []discovery.Endpoint{hinted(a, "z1", ""), hinted(b, "z2", "")}, "1 2"},
		{"of one that terminates", "z1", []discovery.Endpoint{hinted(on("node-1", "10.244.1.1", "draining"), "z1", ""), hinted(on("node-2", "10.244.2.1", "draining"), "z2", "")}, "1 2"},
	} {
		o := options()
		o.Zone = test.zone
		v := Compute(web, load(), []*discovery.EndpointSlice{slice(test.endpoints...)}, o).Virtuals[0]
		var got []string
		for _, r := range v.Reals {
			got = append(got, strings.Split(r.String(), ".")[2])
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: served by %s, want %s", test.name, text, test.want)
		}
	}
	local := load(external("Local"))
	o := options()
	o.Zone = "z1"
	got := Compute(web, local, []*discovery.EndpointSlice{slice(hinted(a, "z2", ""), hinted(b, "z1", ""))}, o)
	if v := got.Virtuals[1]; len(v.Reals) != 1 || v.Reals[0].String() != "10.244.1.1:8080" || v.Drop {
		t.Errorf("policy Local obeys hints: %v", v.Reals)
	}
}
