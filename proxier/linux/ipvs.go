package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/proxier/kernel"
)

// Flags of linux/ip_vs.h.
const (
	persistent = 0x1 // IP_VS_SVC_F_PERSISTENT: session affinity
	hashed     = 0x2 // IP_VS_SVC_F_HASHED: set by the kernel
)

// schedulerFlags are IP_VS_SVC_F_SCHED… of hash schedulers. 1<<3 selects another real server where the chosen one has
// weight 0; without it, sh refuses those clients while it drains. 1<<4 makes mh (Maglev) hash the client's port too,
// as kube-proxy does, to spread few clients.
var schedulerFlags = map[string]uint32{"sh": 1 << 3, "mh": 1<<3 | 1<<4}

type virtualServers struct{ handle *handle }

func newVirtualServers(deadline time.Duration, noReply func()) *virtualServers {
	return &virtualServers{&handle{open: openIPVS, deadline: deadline, noReply: noReply}}
}

func (v *virtualServers) close() { v.handle.close() }

func (v *virtualServers) setTimeouts(t Timeouts) error {
	if t == (Timeouts{}) {
		return nil
	}
	config := &ipvs.Config{TimeoutTCP: t.TCP, TimeoutTCPFin: t.TCPFin, TimeoutUDP: t.UDP}
	if err := v.handle.do("setting the timeouts", func(h ipvsHandle) error { return h.SetConfig(config) }); err != nil {
		return fmt.Errorf("setting the timeouts of IPVS: %w", err)
	}
	return nil
}

func toService(v kernel.Virtual) *ipvs.Service {
	s := &ipvs.Service{Address: v.Addr.AsSlice(), Protocol: uint16(v.Protocol), Port: v.Port, SchedName: v.Scheduler,
		AddressFamily: unix.AF_INET, Netmask: 0xffffffff}
	if v.Addr.Is6() {
		s.AddressFamily, s.Netmask = unix.AF_INET6, 128
	}
	s.Flags = schedulerFlags[v.Scheduler]
	if v.Affinity > 0 {
		s.Flags |= persistent
		s.Timeout = uint32(v.Affinity / time.Second)
	}
	return s
}

func toDestination(real netip.AddrPort, weight int) *ipvs.Destination {
	d := &ipvs.Destination{Address: real.Addr().AsSlice(), Port: real.Port(), Weight: weight,
		ConnectionFlags: ipvs.ConnectionFlagMasq, AddressFamily: unix.AF_INET}
	if real.Addr().Is6() {
		d.AddressFamily = unix.AF_INET6
	}
	return d
}

// fromService converts a virtual server; false for one with a firewall mark, which never belongs to the proxier.
func fromService(s *ipvs.Service) (kernel.Virtual, bool) {
	addr, ok := netip.AddrFromSlice(s.Address)
	if !ok || s.FWMark != 0 {
		return kernel.Virtual{}, false
	}
	v := kernel.Virtual{Key: kernel.Key{Addr: addr, Protocol: kernel.Protocol(s.Protocol), Port: s.Port}, Scheduler: s.SchedName}
	v.ForeignFlags = s.Flags&^(persistent|hashed) != schedulerFlags[s.SchedName]
	if s.Flags&persistent != 0 {
		v.Affinity = time.Duration(s.Timeout) * time.Second
	}
	return v, true
}

func (v *virtualServers) list() ([]kernel.Server, error) {
	list, err := call(v.handle, "listing virtual servers", ipvsHandle.GetServices)
	if err != nil {
		return nil, fmt.Errorf("listing virtual servers: %w", err)
	}
	servers := make([]kernel.Server, 0, len(list))
	for _, s := range list {
		virtual, ok := fromService(s)
		if !ok {
			continue
		}
		reals, err := v.reals(virtual)
		if err != nil {
			return nil, err
		}
		servers = append(servers, kernel.Server{Virtual: virtual, Reals: reals})
	}
	return servers, nil
}

func (v *virtualServers) get(k kernel.Key) (kernel.Server, bool, error) {
	wanted := toService(kernel.Virtual{Key: k})
	s, err := call(v.handle, "reading a virtual server", func(t ipvsHandle) (*ipvs.Service, error) { return t.GetService(wanted) })
	if errors.Is(err, unix.ESRCH) {
		return kernel.Server{}, false, nil
	}
	if err != nil {
		return kernel.Server{}, false, fmt.Errorf("reading virtual server %v: %w", k, err)
	}
	found, ok := fromService(s)
	if !ok || found.Key != k {
		return kernel.Server{}, false, fmt.Errorf("reading virtual server %v: the kernel returned %v", k, found.Key)
	}
	reals, err := v.reals(found)
	return kernel.Server{Virtual: found, Reals: reals}, err == nil, err
}

func (v *virtualServers) reals(virtual kernel.Virtual) ([]kernel.Real, error) {
	s := toService(virtual)
	list, err := call(v.handle, "listing real servers", func(t ipvsHandle) ([]*ipvs.Destination, error) { return t.GetDestinations(s) })
	if err != nil {
		return nil, fmt.Errorf("listing the real servers of %v: %w", virtual.Key, err)
	}
	reals := make([]kernel.Real, 0, len(list))
	for _, d := range list {
		addr, ok := netip.AddrFromSlice(d.Address)
		if !ok {
			return nil, fmt.Errorf("listing the real servers of %v: %v is not an address", virtual.Key, d.Address)
		}
		reals = append(reals, kernel.Real{Addr: netip.AddrPortFrom(addr, d.Port), Weight: d.Weight,
			Active: d.ActiveConnections, Inactive: d.InactiveConnections})
	}
	return reals, nil
}

func (v *virtualServers) addVirtual(virtual kernel.Virtual) error {
	s := toService(virtual)
	err := v.handle.do("creating a virtual server", func(t ipvsHandle) error { return t.NewService(s) })
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", kernel.ErrExists, err)
	}
	return err
}

func (v *virtualServers) deleteVirtual(k kernel.Key) error {
	s := toService(kernel.Virtual{Key: k})
	err := v.handle.do("deleting a virtual server", func(t ipvsHandle) error { return t.DelService(s) })
	return ignore(err, unix.ESRCH)
}

func (v *virtualServers) apply(op kernel.Op) error {
	switch o := op.(type) {
	case kernel.AddVirtual:
		return v.addVirtual(o.Virtual)
	case kernel.UpdateVirtual:
		s := toService(o.Virtual)
		return v.handle.do("updating a virtual server", func(t ipvsHandle) error { return t.UpdateService(s) })
	case kernel.DeleteVirtual:
		return v.deleteVirtual(o.Key)
	case kernel.AddReal:
		s, d := toService(kernel.Virtual{Key: o.Key}), toDestination(o.Real, o.Weight)
		return v.handle.do("adding a real server", func(t ipvsHandle) error { return t.NewDestination(s, d) })
	case kernel.SetWeight:
		s, d := toService(kernel.Virtual{Key: o.Key}), toDestination(o.Real, o.Weight)
		return v.handle.do("changing the weight of a real server", func(t ipvsHandle) error { return t.UpdateDestination(s, d) })
	case kernel.DeleteReal:
		s, d := toService(kernel.Virtual{Key: o.Key}), toDestination(o.Real, 0)
		err := v.handle.do("deleting a real server", func(t ipvsHandle) error { return t.DelDestination(s, d) })
		return ignore(err, unix.ENOENT)
	}
	return fmt.Errorf("operation %q is not an IPVS operation", op.Name())
}

// ignore returns err, or nil if it is target.
func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}
