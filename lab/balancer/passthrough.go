package balancer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
)

// passthrough forwards packets unchanged. nftables marks a packet from a client with the number of its node, and a routing
// rule sends each mark to its node. Services are in a map, so that the cost does not depend on their number:
//
//	chain prerouting {
//	  type filter hook prerouting priority mangle
//	  ct state                                                       # keeps conntrack active: see below
//	  iifname != eth0 ip daddr . meta l4proto . th dport vmap @services
//	  iifname != eth0 ct state related meta mark set ct mark accept  # ICMP errors follow their flow; sticky only
//	  ip daddr 203.0.113.0/24 drop
//	}
//	chain NAMESPACE/NAME {                                           # one for each Service
//	  meta l4proto udp ct mark OUT ct mark set 0                     # sticky only, with UDP, for each removed node
//	  ct mark != 0 meta mark set ct mark accept                      # sticky only
//	  ip saddr RANGE meta mark set ADMITTED                          # a restricted Service only, for each range
//	  meta mark != ADMITTED drop                                     # a restricted Service only
//	  meta mark set jhash ip saddr . ip daddr . th sport . th dport mod N seed S offset PLACES
//	  meta mark PLACES meta mark set NODE ct mark set NODE accept    # one for each node; ct mark: sticky only
//	  …
//	}
//
// The nodes are rules, not elements of a map. The kernel reads the generation of rules once per packet, but that of a
// set at each lookup. So during a transaction a packet could run the old rules with the new map and get no mark.
//
// Without a healthy node the chain drops new flows, as cloud load balancers do. Packets from a node to an external address
// are dropped too: a node without rules for the address would return them, and they would loop until their TTL ends.
//
// The rule `ct state` keeps conntrack active in the namespace: it stops with the last rule that uses it, and then flows
// lose their node.
//
// A UDP flow has no end that a drain could wait for. It moves when its node leaves the membership, as with cloud load
// balancers, which keep only TCP flows on a failed node.
//
// A flow is a conntrack entry: a five-tuple that is used again within the life of its entry keeps its node. A SYN in
// TIME_WAIT or CLOSE makes a new entry.
//
// It forwards one family. For IPv6 the table is of ip6, with the same rules.
type passthrough struct {
	cfg      Config
	header   header
	external netip.Prefix
	rules    *ruleset
	routes   *routes
	services *nftables.Set
	chains   map[string]table // the table that each service's chain implements
}

func newPassthrough(cfg Config, family record.Family) (forwarder, error) {
	p := &passthrough{cfg: cfg, header: headers[family], external: topology.AddressesOf(family).External, chains: map[string]table{}}
	var err error
	if p.routes, err = newRoutes(cfg.Net, family); err != nil {
		return nil, err
	}
	if p.rules, err = newRuleset(cfg.Net.Balancer, p.header.table, "balancer", p.create); err != nil {
		return nil, errors.Join(err, p.routes.close())
	}
	// Load balancers do not check TCP windows: a packet that conntrack calls invalid must still follow its flow.
	if err := sysctl(cfg.Net.Balancer, "net/netfilter/nf_conntrack_tcp_be_liberal", "1"); err != nil {
		cfg.Log.Warn("packets outside of the TCP window will follow the hash, not their flow", "reason", err)
	}
	return p, nil
}

func (p *passthrough) checksHealth() bool { return false }

// create adds the rules that do not depend on services.
func (p *passthrough) create(c *nftables.Conn, t *nftables.Table) error {
	key, err := nftables.ConcatSetType(p.header.address, nftables.TypeInetProto, nftables.TypeInetService)
	if err != nil {
		return err
	}
	// The ID ties sets to rules within one transaction; the library's own counter is shared by all connections.
	p.services = &nftables.Set{Table: t, ID: 1, Name: "services", IsMap: true, Concatenation: true, KeyType: key,
		DataType: nftables.TypeVerdict}
	if err := c.AddSet(p.services, nil); err != nil {
		return err
	}
	chain := c.AddChain(&nftables.Chain{Table: t, Name: "prerouting", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle})
	fromClient := []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: regA}, differs(interfaceName(topology.FabricInterface)...)}
	state := &expr.Ct{Key: expr.CtKeySTATE, Register: regA}
	rules := [][]expr.Any{
		{state},
		join(fromClient, []expr.Any{network(regKey, p.header.target, p.header.size), &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regKey + p.header.words()},
			transport(regKey+p.header.words()+1, portDest, 2),
			&expr.Lookup{SourceRegister: regKey, DestRegister: verdictRegister, IsDestRegSet: true, SetName: p.services.Name}}),
	}
	if p.cfg.Flows == FlowsSticky {
		rules = append(rules, join(fromClient, []expr.Any{state, masked(mark(expr.CtStateBitRELATED)...), differs(mark(0)...)},
			takeFlowMark, []expr.Any{verdictOf(expr.VerdictAccept)}))
	}
	rules = append(rules, append(p.header.within(p.header.target, p.external), verdictOf(expr.VerdictDrop)))
	for _, exprs := range rules {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: exprs})
	}
	return nil
}

// verdictRegister is NFT_REG_VERDICT.
const verdictRegister = 0

// takeFlowMark copies the mark of the flow to the packet.
var takeFlowMark = []expr.Any{&expr.Ct{Key: expr.CtKeyMARK, Register: regA},
	&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: regA}}

func (p *passthrough) set(t table) error {
	chain := &nftables.Chain{Table: p.rules.table, Name: t.service}
	old, exists := p.chains[t.service]
	err := p.rules.commit(func(c *nftables.Conn) error {
		if exists {
			c.FlushChain(chain)
		} else {
			c.AddChain(chain)
		}
		p.writeChain(c, chain, t)
		return p.updateServiceMap(c, old, t)
	})
	if err != nil {
		return fmt.Errorf("changing the balancer's table of %s to %q: %w", t.service, names(t.nodes), err)
	}
	p.chains[t.service] = t
	return nil
}

// updateServiceMap maps a service's addresses and ports to its chain.
func (p *passthrough) updateServiceMap(c *nftables.Conn, old, t table) error {
	if old.addr == t.addr && slices.Equal(old.ports, t.ports) {
		return nil
	}
	if gone := p.elements(old); len(gone) > 0 {
		if err := c.SetDeleteElements(p.services, gone); err != nil {
			return err
		}
	}
	if come := p.elements(t); len(come) > 0 {
		return c.SetAddElements(p.services, come)
	}
	return nil
}

func (p *passthrough) elements(t table) []nftables.SetElement {
	var all []nftables.SetElement
	for _, pt := range t.ports {
		all = append(all, nftables.SetElement{Key: key(t.addr, protocolNumber(pt.protocol), pt.number), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: t.service}})
	}
	return all
}

// writeChain writes a service's chain. record.PickNode computes the same hash.
func (p *passthrough) writeChain(c *nftables.Conn, chain *nftables.Chain, t table) {
	add := func(exprs ...expr.Any) { c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: exprs}) }
	sticky := p.cfg.Flows == FlowsSticky
	if sticky {
		for _, n := range p.leaving(t) {
			add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regA}, equals(protocolNumber(corev1.ProtocolUDP)),
				takeFlowMark[0], equals(mark(uint32(n.Number))...),
				&expr.Immediate{Register: regA, Data: mark(0)}, &expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: regA})
		}
		add(join([]expr.Any{takeFlowMark[0], differs(mark(0)...)}, takeFlowMark, []expr.Any{verdictOf(expr.VerdictAccept)})...)
	}
	for _, rule := range t.requests.admission(p.header) {
		add(rule...)
	}
	if len(t.nodes) == 0 {
		add(verdictOf(expr.VerdictDrop))
		return
	}
	setMark := &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: regA}
	words := p.header.words()
	key := []expr.Any{network(regKey, p.header.source, p.header.size), network(regKey+words, p.header.target, p.header.size)}
	add(join(key, t.requests.portsKey(regKey+2*words), []expr.Any{
		&expr.Hash{SourceRegister: regKey, DestRegister: regA, Length: 2*p.header.size + 8, Modulus: uint32(len(t.nodes)),
			Seed: p.cfg.Seed, Offset: firstPlace, Type: expr.HashTypeJenkins},
		setMark})...)
	for i, n := range t.nodes {
		give := []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: regA}, equals(mark(firstPlace + uint32(i))...),
			&expr.Immediate{Register: regA, Data: mark(uint32(n.number))}, setMark}
		if sticky {
			give = append(give, &expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: regA})
		}
		add(append(give, verdictOf(expr.VerdictAccept))...)
	}
}

// firstPlace is the mark of place 0 in a table, while a packet looks for its node: above the number of any node.
const firstPlace = 1 << 16

// leaving returns the nodes that lose their datagram flows; none for a service without a UDP port.
func (p *passthrough) leaving(t table) []*topology.Node {
	if !slices.ContainsFunc(t.ports, func(pt port) bool { return pt.protocol == corev1.ProtocolUDP }) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.cfg.Net.Nodes), func(n *topology.Node) bool {
		return slices.ContainsFunc(t.nodes, func(in node) bool { return in.number == n.Number })
	})
}

func (p *passthrough) remove(t table) error {
	old, exists := p.chains[t.service]
	if !exists {
		return nil
	}
	delete(p.chains, t.service)
	chain := &nftables.Chain{Table: p.rules.table, Name: t.service}
	err := p.rules.commit(func(c *nftables.Conn) error {
		if err := c.SetDeleteElements(p.services, p.elements(old)); err != nil {
			return err
		}
		c.FlushChain(chain)
		c.DelChain(chain)
		return nil
	})
	if err != nil {
		return fmt.Errorf("removing %s from the balancer's tables: %w", t.service, err)
	}
	return nil
}

func (p *passthrough) close() error { return errors.Join(p.rules.close(), p.routes.close()) }
