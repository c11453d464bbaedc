package linux

import (
	"errors"
	"fmt"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"
)

// probeMark is the firewall mark of the virtual server that probe creates. Virtual servers with a mark never belong
// to a Service.
const probeMark = 0x6869746c

// probeTimeout, in seconds, identifies a probe server that a crashed process left.
const probeTimeout = 86399

func probeService(family uint16, scheduler string) *ipvs.Service {
	s := &ipvs.Service{AddressFamily: family, FWMark: probeMark, SchedName: scheduler, Flags: persistent, Timeout: probeTimeout, Netmask: 0xffffffff}
	if family == unix.AF_INET6 {
		s.Netmask = 128
	}
	return s
}

// probe creates a virtual server of a family (AF_INET, AF_INET6) and reads it back. Without IPVS in the kernel,
// moby/ipvs reports no error for any call (moby/ipvs#27), so only a successful read proves support. If another
// program uses the mark, IPVS exists; a missing scheduler is then detected later.
func (v *virtualServers) probe(family uint16, scheduler string) error {
	wanted := probeService(family, scheduler)
	create := func(t ipvsHandle) error { return t.NewService(wanted) }
	err := v.handle.do("probing IPVS", create)
	if errors.Is(err, unix.EEXIST) {
		others, clearErr := v.clearLeftover(wanted)
		if others {
			return nil
		}
		if err = clearErr; err == nil {
			err = v.handle.do("probing IPVS", create)
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("probing IPVS: the kernel has no scheduler %q: %w; load the module ip_vs_%s or choose another scheduler", scheduler, err, scheduler)
	}
	if err != nil {
		return fmt.Errorf("probing IPVS: creating a virtual server: %w; this needs the module ip_vs and CAP_NET_ADMIN", err)
	}
	found, err := call(v.handle, "probing IPVS", func(t ipvsHandle) (*ipvs.Service, error) { return t.GetService(wanted) })
	if err != nil || found.FWMark != probeMark || found.SchedName != scheduler {
		return errors.New("probing IPVS: the kernel accepted a virtual server but did not return it: " +
			"this kernel has no IPVS; load the module ip_vs, or use a kernel with IPVS")
	}
	return v.deleteProbeServer(wanted)
}

// clearLeftover deletes the probe server of a crashed process. It returns true if the existing server belongs to
// another program.
func (v *virtualServers) clearLeftover(wanted *ipvs.Service) (others bool, err error) {
	found, err := call(v.handle, "probing IPVS", func(t ipvsHandle) (*ipvs.Service, error) { return t.GetService(wanted) })
	if err != nil {
		return false, ignore(err, unix.ESRCH)
	}
	reals, err := call(v.handle, "probing IPVS", func(t ipvsHandle) ([]*ipvs.Destination, error) { return t.GetDestinations(wanted) })
	if err != nil {
		return false, err
	}
	if found.Flags&persistent == 0 || found.Timeout != probeTimeout || len(reals) > 0 {
		return true, nil
	}
	return false, v.deleteProbeServer(wanted)
}

func (v *virtualServers) deleteProbeServer(s *ipvs.Service) error {
	err := v.handle.do("probing IPVS", func(t ipvsHandle) error { return t.DelService(s) })
	if err = ignore(err, unix.ESRCH); err != nil {
		return fmt.Errorf("probing IPVS: deleting the probe server: %w", err)
	}
	return nil
}
