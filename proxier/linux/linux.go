// Package linux is the real kernel: IPVS through moby/ipvs, addresses through vishvananda/netlink, filter sets and
// masquerading through google/nftables, and the sysctls that IPVS needs. It works in the network namespace of the
// process, starts no program of its own, and decides nothing.
//
// (moby/ipvs runs `modprobe ip_vs` once when it is first used; a container without modprobe only gets a warning.)
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

// Options configure the kernel's part of the proxier.
type Options struct {
	Scheduler          string         // tried at the start, so that a missing module is found then
	ClusterCIDRs       []netip.Prefix // pod addresses; traffic to cluster IPs from elsewhere is masqueraded; none: from the node only
	PodBridge          string         // instead of ClusterCIDRs: the bridge that pods' packets come from
	PodInterfacePrefix string         // instead of ClusterCIDRs: how the names of interfaces begin that they come from
	MasqueradeAll      bool           // masquerade all traffic to cluster IPs
	StrictARP          bool           // answer ARP only for addresses of the asked interface (kube-proxy's strictARP)
	HealthPort         uint16         // TCP port of the host that answers at virtual addresses too; 0 for none
	KeepRules          bool           // leave chains and rules as they are, and make none: for who reads the record and removes
	ReadOnly           bool           // prepare nothing and change nothing: what is missing reads as empty
	Timeouts           Timeouts
	Deadline           time.Duration // for the reply to one netlink call; the handle is given up when it passes
	Lost               func(table string)
	Remade             func(what string) // is told of rules and sets that had to be made again
	Deaf               func(error)       // is told why what somebody does to them may not be noticed at once
	Proc               string            // where /proc is; empty for /proc
}

// Timeouts say for how long IPVS remembers idle connections. 0 leaves the kernel's own: 15 min, 2 min and 5 min.
type Timeouts struct {
	TCP    time.Duration
	TCPFin time.Duration // after one side closed
	UDP    time.Duration
}

// Kernel implements kernel.Kernel. It is not safe for concurrent use, except that the handle on IPVS is locked.
type Kernel struct {
	ipvs      *virtualServers
	addresses *addresses
	filter    *filter
	conntrack conntrack
	damage    *damage // nil when it makes no rules
	noIPv6    error
	readOnly  bool
}

var (
	_ kernel.Batcher        = (*Kernel)(nil)
	_ kernel.DamageNotifier = (*Kernel)(nil)
)

// Open makes sure that this kernel can do what is needed, by doing it, and prepares it: sysctls, the device for virtual
// addresses, and, unless KeepRules, the filter table. It changes no virtual server, address or set element that is there already.
func Open(o Options) (*Kernel, error) {
	if o.Deadline <= 0 {
		o.Deadline = 5 * time.Second
	}
	if o.Lost == nil {
		o.Lost = func(string) {}
	}
	if o.Deaf == nil {
		o.Deaf = func(error) {}
	}
	k := &Kernel{ipvs: newVirtualServers(o.Deadline, func() { o.Lost("ipvs") }),
		conntrack: conntrack{o.Deadline, func() { o.Lost("conntrack") }}, readOnly: o.ReadOnly}
	if o.ReadOnly {
		return k, k.openReadOnly(o)
	}
	if err := errors.Join(k.ipvs.check(unix.AF_INET, o.Scheduler), k.ipvs.setTimeouts(o.Timeouts)); err != nil {
		k.Close()
		return nil, err
	}
	if err := setSysctls(o.Proc, o.StrictARP); err != nil {
		k.Close()
		return nil, err
	}
	var err error
	if k.addresses, err = openAddresses(o.Deadline, func() { o.Lost("route") }); err != nil {
		k.Close()
		return nil, err
	}
	families := []family{ipv4}
	if k.noIPv6 = k.lacksIPv6(o); k.noIPv6 == nil {
		families = append(families, ipv6)
	}
	k.filter = newFilter(o, families...)
	if o.KeepRules {
		return k, nil
	}
	if err = k.filter.prepare(); err == nil {
		k.damage, err = watchDamage(o.Deaf)
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// openReadOnly does as much of Open as changes nothing.
func (k *Kernel) openReadOnly(o Options) (err error) {
	if _, err := os.Stat(filepath.Join(o.proc(), "net/ip_vs")); err != nil {
		return fmt.Errorf("looking for IPVS: %w; load the module ip_vs, or use a kernel that has it", err)
	}
	if _, err := os.Stat(filepath.Join(o.proc(), "net/if_inet6")); err != nil {
		k.noIPv6 = fmt.Errorf("the kernel does no IPv6: %w", err)
	}
	k.addresses = &addresses{deadline: o.Deadline, lost: func() { o.Lost("route") }, readOnly: true}
	k.filter = newFilter(o, ipv4, ipv6)
	return k.addresses.reopen()
}

func (o Options) proc() string {
	if o.Proc == "" {
		return "/proc"
	}
	return o.Proc
}

// lacksIPv6 says why this kernel cannot do IPv6; nil when it can.
func (k *Kernel) lacksIPv6(o Options) error {
	if _, err := os.Stat(filepath.Join(o.proc(), "net/if_inet6")); err != nil {
		return fmt.Errorf("the kernel does no IPv6: %w", err)
	}
	return k.ipvs.check(unix.AF_INET6, o.Scheduler)
}

// IPv6 is nil when the kernel can do IPv6; else it says what is missing. Addresses of IPv6 must not be given to it then.
func (k *Kernel) IPv6() error { return k.noIPv6 }

// Close closes the netlink handles. It leaves everything else as it is: the node goes on forwarding.
func (k *Kernel) Close() {
	k.ipvs.close()
	if k.addresses != nil {
		k.addresses.close()
	}
	if k.damage != nil {
		k.damage.close()
	}
}

// Damaged implements kernel.Watched. A kernel that is only read, or whose rules are kept, never tells of anything.
func (k *Kernel) Damaged() <-chan struct{} {
	if k.damage == nil {
		return nil
	}
	return k.damage.received
}

// Scheduler implements kernel.Kernel. It makes and deletes a virtual server; a kernel that is only read is believed to have it.
func (k *Kernel) Scheduler(name string) error {
	if k.readOnly {
		return nil
	}
	return k.ipvs.check(unix.AF_INET, name)
}

// update edits a virtual server in place. While Linux changes a scheduler, for a grace period of RCU, the virtual server has
// none and refuses what is new (ip_vs_edit_service). So that is dropped meanwhile, and a client's second try comes through. A
// process that dies in between leaves the element to the next one, which removes what nothing wants.
func (k *Kernel) update(o kernel.UpdateVirtual) (err error) {
	now, exists, err := k.ipvs.one(o.Virtual.Key)
	if err != nil {
		return err
	}
	hold := []kernel.Element{{Set: kernel.Drop, Key: o.Virtual.Key}}
	if !exists || now.Scheduler == o.Virtual.Scheduler {
		return k.ipvs.apply(o)
	}
	held, err := k.filter.has(hold[0])
	if err != nil || held {
		return errors.Join(err, k.ipvs.apply(o))
	}
	if err := k.filter.change(hold, nil); err != nil {
		return err
	}
	return errors.Join(k.ipvs.apply(o), k.filter.change(nil, hold))
}

// Servers implements kernel.Kernel.
func (k *Kernel) Servers() ([]kernel.Server, error) { return k.ipvs.all() }

// Server implements kernel.Kernel.
func (k *Kernel) Server(key kernel.Key) (kernel.Server, bool, error) { return k.ipvs.one(key) }

// Addresses implements kernel.Kernel.
func (k *Kernel) Addresses() (kernel.Addresses, error) { return k.addresses.read() }

// Elements implements kernel.Kernel.
func (k *Kernel) Elements() ([]kernel.Element, error) { return k.filter.read() }

// Apply implements kernel.Kernel. To delete what is gone already, or to bind what is bound, is no error: the kernel is
// as it was asked to be.
func (k *Kernel) Apply(op kernel.Op) error {
	if k.readOnly {
		return fmt.Errorf("%v: this kernel was opened to be read only", op)
	}
	switch o := op.(type) {
	case kernel.UpdateVirtual:
		return k.update(o)
	case kernel.Bind:
		return k.addresses.bind(o.Addr)
	case kernel.Unbind:
		return k.addresses.unbind(o.Addr)
	case kernel.ForgetFlows:
		return k.conntrack.forget(o.Filters)
	case kernel.ChangeSets:
		return k.filter.change(o.Add, o.Remove)
	}
	if _, ok := kernel.KeyOf(op); !ok {
		return fmt.Errorf("operation %q is unknown to this kernel", op.Name())
	}
	return k.ipvs.apply(op)
}

// ApplyAll implements kernel.Batcher.
func (k *Kernel) ApplyAll(ops []kernel.Op) []error {
	if len(ops) == 0 || k.readOnly {
		return k.oneByOne(ops)
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
	return k.oneByOne(ops)
}

func (k *Kernel) oneByOne(ops []kernel.Op) []error {
	errs := make([]error, len(ops))
	for i, op := range ops {
		errs[i] = k.Apply(op)
	}
	return errs
}
