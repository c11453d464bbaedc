package scenarios

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
)

// worldOf is a run of a family with the lanes named.
func worldOf(family, lanes string) *World {
	four, six := target{tcp: "203.0.113.10:80"}, target{tcp: "[2001:db8:203::a]:80"}
	k := func(name string) *workload {
		return &workload{name: name, targets: map[record.Family]target{record.IPv4: four, record.IPv6: six}}
	}
	return &World{Site: siteOf(nil, nil).Offer(OwnLoadBalancer), Rate: 100, Nodes: []string{"node-1"}, Params: Params{"family": family, "lanes": lanes},
		run: runState{main: k("web"), canary: k(canaryName)}}
}

// Each family has its lanes, its proof and its address in each Service, and the names tell the family.
func TestEachFamilyIsMeasured(t *testing.T) {
	for family, want := range map[string]struct {
		lanes    []string
		families []corev1.IPFamily
	}{
		"ipv4": {[]string{"tcp-new 203.0.113.10:80"}, nil},
		"ipv6": {[]string{"tcp-new-ipv6 [2001:db8:203::a]:80"}, []corev1.IPFamily{corev1.IPv6Protocol}},
		"dual": {[]string{"tcp-new 203.0.113.10:80", "tcp-new-ipv6 [2001:db8:203::a]:80"}, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
	} {
		w := worldOf(family, record.ProtocolNew)
		var lanes []string
		for _, l := range w.parameterLanes() {
			lanes = append(lanes, l.Name+" "+l.Target)
			if l.Protocol != record.ProtocolNew {
				t.Errorf("%s: the lane %s has the protocol %s", family, l.Name, l.Protocol)
			}
		}
		if !slices.Equal(lanes, want.lanes) {
			t.Errorf("%s has the lanes %q, want %q", family, lanes, want.lanes)
		}
		single := len(worldOf("ipv4", record.ProtocolNew).proofs(1))
		if got := len(w.proofs(1)); got != single*len(want.lanes) {
			t.Errorf("%s has %d proofs, want %d for each family", family, got, single)
		}
		if got := w.run.main.service(w).Spec.IPFamilies; !slices.Equal(got, want.families) {
			t.Errorf("%s: the Service has the families %v, want %v", family, got, want.families)
		}
		names, _ := Scenario{}.LaneNames(w.Params)
		for i, name := range names {
			if !strings.HasPrefix(want.lanes[i], name+" ") {
				t.Errorf("%s: budgets know the lane %s", family, name)
			}
		}
	}
}

// A foreign rule matches one family. Sites without a choice of families refuse the key.
func TestRefusedFamilies(t *testing.T) {
	set := map[string]string{"family": "dual", "what": "stale-allow"}
	if _, err := interference().Fill(set); err == nil || !strings.Contains(err.Error(), "one family") {
		t.Errorf("stale-allow in dual stack gave %v", err)
	}
	set["family"] = "ipv6"
	if _, err := interference().Fill(set); err != nil {
		t.Error(err)
	}
	_, err := quiet().Select(nil, map[string]string{"family": "ipv6"})
	if !slices.Equal(Lacking(err), []Capability{AddressFamilies}) {
		t.Errorf("a site without families gave %v", err)
	}
	if _, err := quiet().Fill(map[string]string{"family": "ipv5"}); err == nil || !strings.Contains(err.Error(), "ipv4, ipv6, dual") {
		t.Errorf("family=ipv5 gave %v", err)
	}
}
