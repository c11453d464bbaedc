package main

import (
	"fmt"
	"slices"
	"strings"
)

// The fields of API objects that determine the rules.
type (
	serviceList struct{ Items []service }
	service     struct {
		Metadata meta
		Spec     struct {
			ClusterIP             string
			ExternalIPs           []string
			ExternalTrafficPolicy string
			Ports                 []port
		}
		Status struct {
			LoadBalancer struct{ Ingress []struct{ IP string } }
		}
	}
	sliceList struct{ Items []slice }
	slice     struct {
		Metadata    meta
		AddressType string
		Endpoints   []struct {
			Addresses  []string
			Conditions struct{ Ready, Serving *bool }
		}
		Ports []port
	}
	settings struct {
		Spec struct{ PollMilliseconds int }
	}
	meta struct {
		Namespace, Name string
		Labels          map[string]string
	}
	port struct {
		Name, Protocol string
		Port           int
	}
)

// removal is the input of nft that removes all rules.
const removal = "add table ip exec-nftables\ndelete table ip exec-nftables\n"

// proxy turns objects into rules.
type proxy struct {
	head string              // the rules of every ruleset
	keep bool                // removed endpoints stay in the rules: the fault of the red twin
	kept map[string][]string // by Service and port
}

// ruleset returns the input of nft for all Services. It is deterministic.
func (p *proxy) ruleset(services []service, all []slice) string {
	var b strings.Builder
	b.WriteString(p.head)
	slices.SortFunc(services, func(x, y service) int {
		return strings.Compare(x.Metadata.Namespace+"/"+x.Metadata.Name, y.Metadata.Namespace+"/"+y.Metadata.Name)
	})
	for _, s := range services {
		for _, sp := range s.Spec.Ports {
			endpoints := p.endpoints(s, sp, all)
			for _, address := range s.addresses() {
				match := fmt.Sprintf("ip daddr %s %s dport %d", address, strings.ToLower(sp.Protocol), sp.Port)
				if len(endpoints) == 0 {
					fmt.Fprintf(&b, "add rule ip exec-nftables refuse %s reject\n", match)
					continue
				}
				var entries []string
				for i, e := range endpoints {
					entries = append(entries, fmt.Sprintf("%d : %s", i, e))
				}
				fmt.Fprintf(&b, "add rule ip exec-nftables services %s dnat ip to numgen random mod %d map { %s }\n",
					match, len(endpoints), strings.Join(entries, ", "))
			}
		}
	}
	return b.String()
}

// addresses returns the addresses that serve the Service on every node.
func (s service) addresses() (addresses []string) {
	if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != "None" {
		addresses = append(addresses, s.Spec.ClusterIP)
	}
	if s.Spec.ExternalTrafficPolicy == "Local" {
		return addresses
	}
	addresses = append(addresses, s.Spec.ExternalIPs...)
	for _, in := range s.Status.LoadBalancer.Ingress {
		addresses = append(addresses, in.IP)
	}
	return addresses
}

// endpoints returns the ready endpoints of a port as "address . port", sorted; the serving ones when none is ready.
func (p *proxy) endpoints(s service, sp port, all []slice) []string {
	var ready, serving []string
	for _, sl := range all {
		if sl.Metadata.Namespace != s.Metadata.Namespace || sl.Metadata.Labels["kubernetes.io/service-name"] != s.Metadata.Name || sl.AddressType != "IPv4" {
			continue
		}
		for _, ep := range sl.Ports {
			if ep.Name != sp.Name || ep.Protocol != sp.Protocol {
				continue
			}
			for _, e := range sl.Endpoints {
				target := fmt.Sprintf("%s . %d", e.Addresses[0], ep.Port)
				if yes(e.Conditions.Ready) {
					ready = append(ready, target)
				}
				if yes(e.Conditions.Serving) {
					serving = append(serving, target)
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = serving
	}
	key := s.Metadata.Namespace + "/" + s.Metadata.Name + "/" + sp.Name
	ready = append(ready, p.kept[key]...)
	slices.Sort(ready)
	ready = slices.Compact(ready)
	if p.keep {
		p.kept[key] = ready
	}
	return ready
}

// yes reads a condition. A missing one is true, by the API's definition.
func yes(condition *bool) bool { return condition == nil || *condition }
