package linux

import (
	"context"
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

// kubeletChains are the iptables chains of the kubelet by table (kubelet_network_linux.go of Kubernetes).
var kubeletChains = map[string][]string{
	"filter": {"KUBE-FIREWALL", "KUBE-KUBELET-CANARY"},
	"nat":    {"KUBE-KUBELET-CANARY", "KUBE-MARK-DROP"},
	"mangle": {"KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT"},
}

// KubeProxy is the kernel state of kube-proxy in any mode, except for virtual servers.
type KubeProxy struct {
	Chains []string     // iptables-nft chains, such as "ip nat KUBE-SERVICES"; sorted
	Kept   []string     // chains that stay because rules of other programs jump to them; sorted
	Tables []string     // nftables tables, such as "ip kube-proxy"
	Sets   []string     // ipsets; sorted
	Device bool         // kube-ipvs0 exists
	Addrs  []netip.Addr // addresses on kube-ipvs0
	Legacy bool         // the kernel has iptables-legacy tables, which are not examined

	jumps  []*nftables.Rule
	chains []*nftables.Chain
	tables []*nftables.Table
}

// Modes returns the kube-proxy modes that left state: ipvs, iptables, nftables. Mode ipvs also uses iptables rules,
// so these count as its own if its device or sets exist.
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

// FindKubeProxy reads kube-proxy's state. It changes nothing.
func FindKubeProxy() (*KubeProxy, error) {
	p := &KubeProxy{}
	_, err := os.Stat("/proc/net/ip_tables_names")
	p.Legacy = err == nil && legacyInUse()
	if err := p.findRules(); err != nil {
		return nil, fmt.Errorf("reading kube-proxy's rules: %w", err)
	}
	if err := p.findSets(); err != nil {
		return nil, fmt.Errorf("reading kube-proxy's ipsets: %w", err)
	}
	link, err := netlink.LinkByName(kubeProxyDevice)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the device %s: %w", kubeProxyDevice, err)
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

// legacyInUse reports whether iptables-legacy has a table in this namespace.
func legacyInUse() bool {
	for _, name := range []string{"ip_tables_names", "ip6_tables_names"} {
		if text, err := os.ReadFile(filepath.Join("/proc/net", name)); err == nil && len(strings.TrimSpace(string(text))) > 0 {
			return true
		}
	}
	return false
}

// Constants of linux/netfilter/ipset/ip_set.h for listing names.
const (
	ipsetList                               = unix.NFNL_SUBSYS_IPSET<<8 | 7
	ipsetProtocol, ipsetSetName, ipsetFlags = 1, 2, 6
	ipsetProtocolVersion, ipsetNamesOnly    = 6, 1 << 1
)

// findSets lists the names of the ipsets without their entries.
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
	request := message(ipsetList, unix.AF_INET, data)
	request.Header.Flags |= mdnetlink.Dump
	replies, err := conn.Execute(request)
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
		return "", fmt.Errorf("a reply of %d bytes is too short", len(data))
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

// kubeProxyDeadline bounds one read of kube-proxy's rules, of which there may be hundreds of thousands.
const kubeProxyDeadline = 30 * time.Second

func nftConn() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *mdnetlink.Conn) error { return c.SetDeadline(time.Now().Add(kubeProxyDeadline)) }))
}

// Serves reports whether a newly started kube-proxy has completed its first pass for each family of the addresses;
// without addresses, for one family. Each family has its own pass, which writes its rules in one transaction; mode
// ipvs writes them last.
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

// servedByRules returns the families whose KUBE-SERVICES chain has rules.
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

// servedByMap returns the families whose map of Services has elements.
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
			p.Tables = append(p.Tables, familyName(t.Family)+" "+t.Name)
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

func familyName(f nftables.TableFamily) string {
	if f == nftables.TableFamilyIPv6 {
		return "ip6"
	}
	return "ip"
}

func chainName(c *nftables.Chain) string {
	return familyName(c.Table.Family) + " " + c.Table.Name + " " + c.Name
}

// isKubeProxyChain reports whether an iptables chain belongs to kube-proxy.
func isKubeProxyChain(c *nftables.Chain) bool {
	kubelets, iptables := kubeletChains[c.Table.Name]
	return iptables && strings.HasPrefix(c.Name, "KUBE-") && !slices.Contains(kubelets, c.Name)
}

// findChains classifies the chains of a family. Jumps from builtin chains to kube-proxy's chains are removed with
// them; a chain to which a chain of another program jumps is kept.
func (p *KubeProxy) findChains(c *nftables.Conn, all []*nftables.Chain) error {
	wanted := map[string]bool{}
	for _, chain := range all {
		wanted[chain.Table.Name] = wanted[chain.Table.Name] || isKubeProxyChain(chain)
	}
	needed := map[string]bool{}
	for _, chain := range all {
		if !wanted[chain.Table.Name] || isKubeProxyChain(chain) {
			continue
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return fmt.Errorf("reading the chain %s: %w", chainName(chain), err)
		}
		for _, rule := range rules {
			to := &nftables.Chain{Table: chain.Table, Name: jumpTarget(rule)}
			if !isKubeProxyChain(to) {
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
		if !isKubeProxyChain(chain) {
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

// jumpTarget returns the chain that a rule jumps to; empty for none.
func jumpTarget(rule *nftables.Rule) string {
	for _, e := range rule.Exprs {
		if v, ok := e.(*expr.Verdict); ok && (v.Kind == expr.VerdictJump || v.Kind == expr.VerdictGoto) {
			return v.Chain
		}
	}
	return ""
}

// RemoveRules removes the iptables and nftables rules in one transaction, so no packet meets a partial ruleset.
// Translated flows continue through conntrack.
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
		return fmt.Errorf("removing kube-proxy's rules: %w; if kube-proxy still runs, stop it and run the command again", err)
	}
	return nil
}

// RemoveSets destroys the ipsets. The kernel releases them asynchronously after their rules are removed, so it
// retries each for up to 10 s.
func (p *KubeProxy) RemoveSets(ctx context.Context) error {
	for _, set := range p.Sets {
		if err := removeSet(ctx, set, netlink.IpsetDestroy); err != nil {
			return err
		}
	}
	return nil
}

// removeSet destroys an ipset as soon as the kernel has released it.
func removeSet(ctx context.Context, set string, destroy func(string) error) error {
	deadline := time.Now().Add(10 * time.Second)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		err := ignore(destroy(set), unix.ENOENT)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("destroying the ipset %s: %w; a rule of another program may use it", set, err)
		}
		pause.Reset(10 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("stopped while the kernel still uses the ipset %s (%w); run the command again: %w", set, err, context.Cause(ctx))
		}
	}
}

// BindAddrs adds missing addresses to kube-ipvs0. kube-proxy takes external IPv6 addresses on other devices for
// node addresses and does not bind them; it would notice their removal only after 30 s.
func (p *KubeProxy) BindAddrs(addrs []netip.Addr) error {
	link, err := netlink.LinkByName(kubeProxyDevice)
	for _, a := range addrs {
		if err == nil {
			err = ignore(netlink.AddrAdd(link, hostAddr(a)), unix.EEXIST)
		}
	}
	if err != nil {
		return fmt.Errorf("adding addresses to %s: %w", kubeProxyDevice, err)
	}
	return nil
}

// RemoveDevice deletes kube-ipvs0 with its addresses. Addresses that the proxier made local stay so.
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
