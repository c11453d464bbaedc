package run

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/scenarios/timeline"
)

// recordedObject has the fields of a timeline's object that can conflict with objects of the lab.
type recordedObject struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		ClusterIP string
		Selector  map[string]string
		Ports     []struct{ NodePort int }
	}
}

// The lab gives its own Services the first addresses and ports of their ranges (lab/controllers).
const (
	addressesOfLab = 200
	portsOfLab     = 200
	firstNodePort  = 30000
)

// checkLab refuses objects that conflict with the lab's own, such as those of a recording that is not anonymous, and objects that the
// control plane does not accept.
func (t *Timeline) checkLab(controlPlane string) error {
	for _, s := range slices.Concat(t.Given, t.Steps) {
		if s.Verb != "object apply" {
			continue
		}
		var o recordedObject
		if err := json.Unmarshal([]byte(s.JSON), &o); err != nil {
			return fmt.Errorf("%s:%d: %w", t.File, s.Line, err)
		}
		ref, _ := s.Reference() // the parser has checked it
		if why := o.conflict(t.Nodes, controlPlane); why != "" {
			return fmt.Errorf("%s:%d: %s: %s", t.File, s.Line, ref, why)
		}
	}
	return nil
}

// ofLab reports whether the lab may give its own Services a cluster IP.
func ofLab(a netip.Addr) bool {
	services := topology.AddressesOf(record.FamilyOf(a)).Services
	return record.Nth(services, 1).Compare(a) <= 0 && a.Less(record.Nth(services, 1+addressesOfLab))
}

// conflict returns why an object conflicts with the lab, empty if it does not.
func (o recordedObject) conflict(nodes int, controlPlane string) string {
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
		if err == nil && ofLab(a) {
			return fmt.Sprintf("the lab may give its own Services the address %s; %s", a, anew)
		}
		if err == nil && controlPlane != record.ControlReplay && !topology.ServiceCIDR.Contains(a) {
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
