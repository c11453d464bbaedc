package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kubeProxyDevice holds the virtual addresses of kube-proxy in IPVS mode.
const kubeProxyDevice = "kube-ipvs0"

// kubeletChains are chains of iptables that the kubelet makes for itself, by table (kubelet_network_linux.go of Kubernetes).
var kubeletChains = map[string][]string{
	"filter": {"KUBE-FIREWALL", "KUBE-KUBELET-CANARY"},
	"nat":    {"KUBE-KUBELET-CANARY", "KUBE-MARK-DROP"},
	"mangle": {"KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"},
}

// KubeProxy is what kube-proxy has in the kernel beside virtual servers, of whichever mode it was.
type KubeProxy struct {
	Chains []string     // of iptables in its nft variant, as "ip nat KUBE-SERVICES"; sorted
	Kept   []string     // those of them that stay, since rules of others lead there
	Tables []string     // of nftables, as "ip kube-proxy"
	Sets   []string     // of ipset
	Device bool         // whether kube-ipvs0 is there
	Addrs  []netip.Addr // on kube-ipvs0
	Legacy bool         // the kernel has tables of the legacy variant of iptables, which may have more

	jumps  []*nftables.Rule
	chains []*nftables.Chain
	tables []*nftables.Table
}

// Modes returns the modes of kube-proxy that left something: ipvs, iptables, nftables. Rules of iptables are those of the mode
// ipvs where that left its device or sets.
func (p *KubeProxy) Modes() []string {
	var modes []string
	if p.Device || len(p.Sets) > 0 {
		modes = append(modes, "ipvs")
	} else if len(p.Chains) > 0 {
		modes = append(modes, "iptables")
	}
	if len(p.Tables) > 0 {
		modes = append(modes, "nftables")
	}
	return modes
}

// FindKubeProxy reads what kube-proxy has in the kernel. It changes nothing.
func FindKubeProxy() (*KubeProxy, error) {
	p := &KubeProxy{}
	_, err := os.Stat("/proc/net/ip_tables_names")
	p.Legacy = err == nil && legacyInUse()
	if err := p.findRules(); err != nil {
		return nil, fmt.Errorf("looking for kube-proxy's rules: %w", err)
	}
	if err := p.findSets(); err != nil {
		return nil, fmt.Errorf("looking for kube-proxy's sets of ipset: %w", err)
	}
	link, err := netlink.LinkByName(kubeProxyDevice)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the device %s: %w", kubeProxyDevice, err)
	}
	p.Device = true
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", kubeProxyDevice, err)
	}
	for _, found := range list {
		if a, ok := netip.AddrFromSlice(found.IP); ok && !a.Unmap().IsLinkLocalUnicast() {
			p.Addrs = append(p.Addrs, a.Unmap())
		}
	}
	return p, nil
}

// legacyInUse reports whether the legacy variant of iptables has a table in this namespace.
func legacyInUse() bool {
	for _, name := range []string{"ip_tables_names", "ip6_tables_names"} {
		if text, err := os.ReadFile(filepath.Join("/proc/net", name)); err == nil && len(strings.TrimSpace(string(text))) > 0 {
			return true
		}
	}
	return false
}

// Of linux/netfilter/ipset/ip_set.h: a list of names alone.
const (
	ipsetList                               = unix.NFNL_SUBSYS_IPSET<<8 | 7
	ipsetProtocol, ipsetSetName, ipsetFlags = 1, 2, 6
	ipsetProtocolVersion, ipsetNamesOnly    = 6, 1 << 1
)

// findSets lists the names of the sets. What is in them may be a lot, and is not asked for.
func (p *KubeProxy) findSets() error {
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(kubeProxyDeadline)); err != nil {
		return err
	}
	e := mdnetlink.NewAttributeEncoder()
	e.Uint8(ipsetProtocol, ipsetProtocolVersion)
	e.Bytes(unix.NLA_F_NET_BYTEORDER|ipsetFlags, binary.BigEndian.AppendUint32(nil, ipsetNamesOnly))
	data, err := e.Encode()
	if err != nil {
		return err
	}
	ask := message(ipsetList, unix.AF_INET, data)
	ask.Header.Flags |= mdnetlink.Dump
	replies, err := conn.Execute(ask)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // no ip_set in this kernel
	}
	for _, reply := range replies {
		name, nameErr := setName(reply.Data)
		if err = errors.Join(err, nameErr); strings.HasPrefix(name, "KUBE-") {
			p.Sets = append(p.Sets, name)
		}
	}
	slices.Sort(p.Sets)
	p.Sets = slices.Compact(p.Sets)
	return err
}

func setName(data []byte) (string, error) {
	if len(data) < 4 {
		return "", fmt.Errorf("an answer of %d bytes is none", len(data))
	}
	d, err := mdnetlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return "", err
	}
	for d.Next() {
		if d.Type() == ipsetSetName {
			return d.String(), nil
		}
	}
	return "", d.Err()
}

// kubeProxyDeadline is for one look at kube-proxy's rules, of which there may be hundreds of thousands.
const kubeProxyDeadline = 30 * time.Second

func nftConn() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *mdnetlink.Conn) error { return c.SetDeadline(time.Now().Add(kubeProxyDeadline)) }))
}

// Serves reports whether a kube-proxy that has just started has done its first pass for each family of these addresses, or for
// one of the two where there are none: the families have a pass each, which writes its rules by one transaction, at the end in
// mode ipvs.
func (p *KubeProxy) Serves(mode string, addrs []netip.Addr) (bool, error) {
	c, err := nftConn()
	if err != nil {
		return false, err
	}
	if p.Device != (mode == "ipvs") {
		return false, nil
	}
	served, err := p.servedByRules(c)
	if mode == "nftables" {
		served, err = p.servedByMap(c)
	}
	if err != nil {
		return false, err
	}
	for _, addr := range addrs {
		if !served[tableFamily(addr)] {
			return false, nil
		}
	}
	return len(served) > 0, nil
}

func tableFamily(addr netip.Addr) nftables.TableFamily {
	if addr.Is4() {
		return nftables.TableFamilyIPv4
	}
	return nftables.TableFamilyIPv6
}

// servedByRules are the families whose chain of Services has rules.
func (p *KubeProxy) servedByRules(c *nftables.Conn) (map[nftables.TableFamily]bool, error) {
	served := map[nftables.TableFamily]bool{}
	for _, chain := range p.chains {
		if chain.Table.Name != "nat" || chain.Name != "KUBE-SERVICES" {
			continue
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return nil, err
		}
		if len(rules) > 0 {
			served[chain.Table.Family] = true
		}
	}
	return served, nil
}

// servedByMap are the families whose map of Services has something in it.
func (p *KubeProxy) servedByMap(c *nftables.Conn) (map[nftables.TableFamily]bool, error) {
	served := map[nftables.TableFamily]bool{}
	for _, table := range p.tables {
		sets, err := c.GetSets(table)
		if err != nil {
			return nil, err
		}
		for _, set := range sets {
			if set.Name != "service-ips" {
				continue
			}
			elements, err := c.GetSetElements(set)
			if err != nil {
				return nil, err
			}
			if len(elements) > 0 {
				served[table.Family] = true
			}
		}
	}
	return served, nil
}

func (p *KubeProxy) findRules() error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	tables, err := c.ListTables()
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Name == "kube-proxy" && (t.Family == nftables.TableFamilyIPv4 || t.Family == nftables.TableFamilyIPv6) {
			p.tables = append(p.tables, t)
			p.Tables = append(p.Tables, familyWord(t.Family)+" "+t.Name)
		}
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		chains, err := c.ListChainsOfTableFamily(family)
		if err != nil {
			return err
		}
		if err := p.findChains(c, chains); err != nil {
			return err
		}
	}
	slices.Sort(p.Chains)
	slices.Sort(p.Kept)
	return nil
}

func familyWord(f nftables.TableFamily) string {
	if f == nftables.TableFamilyIPv6 {
		return "ip6"
	}
	return "ip"
}

func chainName(c *nftables.Chain) string {
	return familyWord(c.Table.Family) + " " + c.Table.Name + " " + c.Name
}

// isKubeProxys reports whether a chain of iptables is kube-proxy's.
func isKubeProxys(c *nftables.Chain) bool {
	kubelets, iptables := kubeletChains[c.Table.Name]
	return iptables && strings.HasPrefix(c.Name, "KUBE-") && !slices.Contains(kubelets, c.Name)
}

// findChains sorts the chains of a family. Rules of the builtin chains that lead to kube-proxy's go with them; a chain that
// somebody else's chain leads to is not ours to take.
func (p *KubeProxy) findChains(c *nftables.Conn, all []*nftables.Chain) error {
	wanted := map[string]bool{}
	for _, chain := range all {
		wanted[chain.Table.Name] = wanted[chain.Table.Name] || isKubeProxys(chain)
	}
	needed := map[string]bool{}
	for _, chain := range all {
		if !wanted[chain.Table.Name] || isKubeProxys(chain) {
			continue
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return fmt.Errorf("reading the chain %s: %w", chainName(chain), err)
		}
		for _, rule := range rules {
			to := &nftables.Chain{Table: chain.Table, Name: leadsTo(rule)}
			if !isKubeProxys(to) {
				continue
			}
			if chain.Hooknum != nil {
				p.jumps = append(p.jumps, &nftables.Rule{Table: chain.Table, Chain: chain, Handle: rule.Handle})
			} else {
				needed[chainName(to)] = true
			}
		}
	}
	for _, chain := range all {
		if !isKubeProxys(chain) {
			continue
		}
		name := chainName(chain)
		p.Chains = append(p.Chains, name)
		if needed[name] {
			p.Kept = append(p.Kept, name)
			continue
		}
		p.chains = append(p.chains, chain)
	}
	return nil
}

// leadsTo returns the chain that a rule jumps to; empty for none.
func leadsTo(rule *nftables.Rule) string {
	for _, e := range rule.Exprs {
		if v, ok := e.(*expr.Verdict); ok && (v.Kind == expr.VerdictJump || v.Kind == expr.VerdictGoto) {
			return v.Chain
		}
	}
	return ""
}

// RemoveRules removes the rules of iptables and nftables, all in one transaction: no packet meets half of them. Flows that they
// translated go on, since conntrack remembers them.
func (p *KubeProxy) RemoveRules() error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	for _, rule := range p.jumps {
		if err := c.DelRule(rule); err != nil {
			return fmt.Errorf("removing kube-proxy's rules: %w", err)
		}
	}
	for _, chain := range p.chains {
		c.FlushChain(chain)
	}
	for _, chain := range p.chains {
		c.DelChain(chain)
	}
	for _, table := range p.tables {
		c.DelTable(table)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("removing kube-proxy's rules: %w; if a kube-proxy still runs, stop it, and say it again", err)
	}
	return nil
}

// RemoveSets destroys the sets of ipset. The kernel lets go of those that rules had used a moment after the rules are gone.
func (p *KubeProxy) RemoveSets() error {
	for _, set := range p.Sets {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			err := unless(netlink.IpsetDestroy(set), unix.ENOENT)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("destroying the ipset %s: %w; a rule of somebody else may use it", set, err)
			}
		}
	}
	return nil
}

// BindOn puts addresses on kube-ipvs0 that are not there yet. Kube-proxy leaves external addresses to whichever other device has
// them (it takes them for the node's own), and finds them missing 30 seconds after they are gone there.
func (p *KubeProxy) BindOn(addrs []netip.Addr) error {
	link, err := netlink.LinkByName(kubeProxyDevice)
	for _, a := range addrs {
		if err == nil {
			err = unless(netlink.AddrAdd(link, host(a)), unix.EEXIST)
		}
	}
	if err != nil {
		return fmt.Errorf("putting addresses on %s: %w", kubeProxyDevice, err)
	}
	return nil
}

// RemoveDevice deletes kube-ipvs0 with all its addresses. Those that are on the proxier's device too stay the node's own.
func (p *KubeProxy) RemoveDevice() error {
	link, err := netlink.LinkByName(kubeProxyDevice)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("deleting the device %s: %w", kubeProxyDevice, err)
	}
	return nil
}
