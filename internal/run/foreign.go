package run

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/scenarios/timeline"
)

// foreign is what of an object of a timeline may meet what the lab has of its own.
type foreign struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		ClusterIP string
		Selector  map[string]string
		Ports     []struct{ NodePort int }
	}
}

// The lab gives its own Services the first addresses and ports of their ranges (lab/controllers), a few for each.
var firstOfLab = netip.MustParseAddr("10.96.0.1")

const (
	addressesOfLab = 200
	portsOfLab     = 200
	firstNodePort  = 30000
)

// checkLab sees that no object of the timeline takes the place of one of the lab's own, as those of a cluster that was
// recorded under its own names and addresses may, and that the control plane takes them all.
func (t *Timeline) checkLab(controlPlane string) error {
	for _, s := range slices.Concat(t.Given, t.Steps) {
		if s.Verb != "object apply" {
			continue
		}
		var o foreign
		if err := json.Unmarshal([]byte(s.JSON), &o); err != nil {
			return fmt.Errorf("%s:%d: %w", t.File, s.Line, err)
		}
		ref, _ := s.Reference() // the parser has seen it
		if why := o.meets(t.Nodes, controlPlane); why != "" {
			return fmt.Errorf("%s:%d: %s: %s", t.File, s.Line, ref, why)
		}
	}
	return nil
}

// meets says why an object cannot be in the lab, empty when it can.
func (o foreign) meets(nodes int, controlPlane string) string {
	const anew = "record it with --anonymous, or change the line"
	switch o.Kind {
	case "Node":
		if n, err := strconv.Atoi(strings.TrimPrefix(o.Metadata.Name, "node-")); err == nil && n >= 1 && n <= nodes {
			return "the lab has a node of this name; " + anew
		}
	case "Service":
		own := slices.Contains([]string{timeline.Measured, "canary"}, o.Metadata.Name) && (o.Metadata.Namespace == "" || o.Metadata.Namespace == "default")
		if own && len(o.Spec.Selector) == 0 {
			return "the lab has a Service of this name, and this one has no selector: nothing would be behind it; " + anew
		}
		a, err := netip.ParseAddr(o.Spec.ClusterIP)
		last := firstOfLab.As4()
		last[3] += addressesOfLab
		if err == nil && a.Compare(firstOfLab) >= 0 && a.Compare(netip.AddrFrom4(last)) < 0 {
			return fmt.Sprintf("the lab may give its own Services the address %s; %s", a, anew)
		}
		if err == nil && controlPlane != "replay" && !topology.ServiceCIDR.Contains(a) {
			return fmt.Sprintf("a real API server gives no address outside %s, and this is %s; it needs --controlplane replay", topology.ServiceCIDR, a)
		}
		for _, p := range o.Spec.Ports {
			if p.NodePort >= firstNodePort && p.NodePort < firstNodePort+portsOfLab {
				return fmt.Sprintf("the lab may give its own Services the node port %d; %s", p.NodePort, anew)
			}
		}
	}
	return ""
}
