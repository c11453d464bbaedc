// Package linux implements kernel.Kernel for Linux: IPVS through moby/ipvs, addresses through vishvananda/netlink,
// filter sets and masquerading through google/nftables, and the sysctls that IPVS needs. It works in the network
// namespace of the process and starts no program. moby/ipvs tries `modprobe ip_vs` once, which only logs a warning
// where modprobe is missing.
package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// Options configure a Kernel.
type Options struct {
	Scheduler          string         // checked by Open, so that a missing module is found at the start
	ClusterCIDRs       []netip.Prefix // pod addresses; traffic to cluster IPs from other sources is masqueraded; empty: only from the node
	PodBridge          string         // instead of ClusterCIDRs: bridge that pod packets arrive on
	PodInterfacePrefix string         // instead of ClusterCIDRs: prefix of the names of interfaces that pod packets arrive on
	MasqueradeAll      bool           // masquerade all traffic to cluster IPs
	StrictARP          bool           // answer ARP only for addresses of the receiving interface (kube-proxy's strictARP)
	HealthPort         uint16         // TCP port of the host that also answers at virtual addresses; 0 for none
	KeepRules          bool           // keep existing chains and rules, and create none: for reading and removing state
	ReadOnly           bool           // change nothing; missing tables and devices read as empty
	Timeouts           Timeouts
	Deadline           time.Duration      // time limit for the reply to one netlink call, after which its socket is replaced; default 5 s
	NoReply            func(table string) // called when a netlink socket is replaced after a missing reply
	Recreated          func(what string)  // called with a description of rules and sets that were recreated
	MonitorFailed      func(error)        // called when deletions by other programs may remain undetected
	ProcDir            string             // path of procfs; empty for /proc
}

// Timeouts are IPVS's timeouts of idle connections. 0 keeps the kernel's values, by default 15 min, 2 min and 5 min.
type Timeouts struct {
	TCP    time.Duration
	TCPFin time.Duration // after one side has closed
	UDP    time.Duration
}

// Kernel implements kernel.Kernel. It is not safe for concurrent use.
type Kernel struct {
	ipvs      *virtualServers
	addresses *addresses
	filter    *filter
	conntrack conntrack
	monitor   *ruleMonitor // nil if the rules are not managed
	ipv6Err   error
	readOnly  bool
}

var (
	_ kernel.Batcher        = (*Kernel)(nil)
	_ kernel.DamageNotifier = (*Kernel)(nil)
)

// Open checks that the kernel has the required features, by using them, and prepares it: sysctls, the device for
// virtual addresses, and, unless KeepRules, the nftables tables. Existing virtual servers, addresses and set elements
// stay unchanged.
func Open(o Options) (*Kernel, error) {
	if o.Deadline <= 0 {
		o.Deadline = 5 * time.Second
	}
	if o.NoReply == nil {
		o.NoReply = func(string) {}
	}
	if o.MonitorFailed == nil {
		o.MonitorFailed = func(error) {}
	}
	k := &Kernel{ipvs: newVirtualServers(o.Deadline, func() { o.NoReply("ipvs") }),
		conntrack: conntrack{o.Deadline, func() { o.NoReply("conntrack") }}, readOnly: o.ReadOnly}
	if o.ReadOnly {
		return k, k.openReadOnly(o)
	}
	if err := errors.Join(k.ipvs.probe(unix.AF_INET, o.Scheduler), k.ipvs.setTimeouts(o.Timeouts)); err != nil {
		k.Close()
		return nil, err
	}
	if err := setSysctls(o.ProcDir, o.StrictARP); err != nil {
		k.Close()
		return nil, err
	}
	var err error
	if k.addresses, err = openAddresses(o.Deadline, func() { o.NoReply("route") }); err != nil {
		k.Close()
		return nil, err
	}
	families := []family{ipv4}
	if k.ipv6Err = k.checkIPv6(o); k.ipv6Err == nil {
		families = append(families, ipv6)
	}
	k.filter = newFilter(o, families...)
	if o.KeepRules {
		return k, nil
	}
	if err = k.filter.prepare(); err == nil {
		k.monitor, err = startMonitor(o.MonitorFailed)
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// openReadOnly performs the parts of Open that change nothing.
func (k *Kernel) openReadOnly(o Options) (err error) {
	if _, err := os.Stat(filepath.Join(o.procDir(), "net/ip_vs")); err != nil {
		return fmt.Errorf("checking for IPVS: %w; load the module ip_vs, or use a kernel with IPVS", err)
	}
	if _, err := os.Stat(filepath.Join(o.procDir(), "net/if_inet6")); err != nil {
		k.ipv6Err = fmt.Errorf("the kernel has no IPv6: %w", err)
	}
	k.addresses = &addresses{deadline: o.Deadline, noReply: func() { o.NoReply("route") }, readOnly: true}
	k.filter = newFilter(o, ipv4, ipv6)
	return k.addresses.reopen()
}

func (o Options) procDir() string {
	if o.ProcDir == "" {
		return "/proc"
	}
	return o.ProcDir
}

// checkIPv6 returns why this kernel cannot serve IPv6; nil if it can. The device must exist.
func (k *Kernel) checkIPv6(o Options) error {
	if _, err := os.Stat(filepath.Join(o.procDir(), "net/if_inet6")); err != nil {
		return fmt.Errorf("the kernel has no IPv6: %w", err)
	}
	if err := k.ipvs.probe(unix.AF_INET6, o.Scheduler); err != nil {
		return err
	}
	return enableIPv6(o.procDir())
}

// IPv6 returns nil if the kernel supports IPv6, or else what is missing. Without support, IPv6 operations must not be
// applied.
func (k *Kernel) IPv6() error { return k.ipv6Err }

// Close closes the netlink sockets. All kernel state stays, so the node continues to forward.
func (k *Kernel) Close() {
	k.ipvs.close()
	if k.addresses != nil {
		k.addresses.close()
	}
	if k.monitor != nil {
		k.monitor.close()
	}
}

// Damaged implements kernel.DamageNotifier. With ReadOnly or KeepRules it never receives.
func (k *Kernel) Damaged() <-chan struct{} {
	if k.monitor == nil {
		return nil
	}
	return k.monitor.damaged
}

// Scheduler implements kernel.Kernel. It creates and deletes a virtual server; with ReadOnly it assumes that the
// scheduler exists.
func (k *Kernel) Scheduler(name string) error {
	if k.readOnly {
		return nil
	}
	return k.ipvs.probe(unix.AF_INET, name)
}

// updateVirtual updates a virtual server. While Linux replaces a scheduler, the virtual server has none for an RCU
// grace period and refuses new connections (ip_vs_edit_service). A Drop element makes clients retransmit instead. If
// the process dies meanwhile, the next one removes the unwanted element.
func (k *Kernel) updateVirtual(o kernel.UpdateVirtual) (err error) {
	current, exists, err := k.ipvs.get(o.Virtual.Key)
	if err != nil {
		return err
	}
	block := []kernel.Element{{Set: kernel.Drop, Key: o.Virtual.Key}}
	if !exists || current.Scheduler == o.Virtual.Scheduler {
		return k.ipvs.apply(o)
	}
	blocked, err := k.filter.has(block[0])
	if err != nil || blocked {
		return errors.Join(err, k.ipvs.apply(o))
	}
	if err := k.filter.change(block, nil); err != nil {
		return err
	}
	return errors.Join(k.ipvs.apply(o), k.filter.change(nil, block))
}

// Servers implements kernel.Kernel.
func (k *Kernel) Servers() ([]kernel.Server, error) { return k.ipvs.list() }

// Server implements kernel.Kernel.
func (k *Kernel) Server(key kernel.Key) (kernel.Server, bool, error) { return k.ipvs.get(key) }

// Addresses implements kernel.Kernel.
func (k *Kernel) Addresses() (kernel.Addresses, error) { return k.addresses.read() }

// Elements implements kernel.Kernel.
func (k *Kernel) Elements() ([]kernel.Element, error) { return k.filter.read() }

// Apply implements kernel.Kernel. Deleting a missing object and binding a bound address are no errors.
func (k *Kernel) Apply(op kernel.Op) error {
	if k.readOnly {
		return fmt.Errorf("%v: the kernel was opened read-only", op)
	}
	switch o := op.(type) {
	case kernel.UpdateVirtual:
		return k.updateVirtual(o)
	case kernel.Bind:
		return k.addresses.bind(o.Addr)
	case kernel.Unbind:
		return k.addresses.unbind(o.Addr)
	case kernel.ForgetFlows:
		return k.conntrack.deleteStale(o.Filters)
	case kernel.ChangeSets:
		return k.filter.change(o.Add, o.Remove)
	}
	if _, ok := kernel.KeyOf(op); !ok {
		return fmt.Errorf("unknown operation %q", op.Name())
	}
	return k.ipvs.apply(op)
}

// ApplyAll implements kernel.Batcher.
func (k *Kernel) ApplyAll(ops []kernel.Op) []error {
	if len(ops) == 0 || k.readOnly {
		return k.applyEach(ops)
	}
	switch ops[0].(type) {
	case kernel.AddVirtual, kernel.AddReal:
		return k.ipvs.applyAll(ops)
	case kernel.Bind:
		addrs := make([]netip.Addr, len(ops))
		for i, op := range ops {
			addrs[i] = op.(kernel.Bind).Addr
		}
		return k.addresses.bindAll(addrs)
	}
	return k.applyEach(ops)
}

func (k *Kernel) applyEach(ops []kernel.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		errs[i] = k.Apply(op)
	}
	return errs
}
