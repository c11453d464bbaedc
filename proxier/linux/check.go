package linux

import (
	"errors"
	"fmt"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"
)

// checkMark is the firewall mark of the virtual server that is made and deleted to find out whether there is an IPVS. One that
// goes by a mark is never a Service's, whose may be at any address and port.
const checkMark = 0x6869746c

// checkTimeout, in seconds, tells one that was left behind from anybody else's.
const checkTimeout = 86399

func probe(family uint16, scheduler string) *ipvs.Service {
	s := &ipvs.Service{AddressFamily: family, FWMark: checkMark, SchedName: scheduler, Flags: persistent, Timeout: checkTimeout, Netmask: 0xffffffff}
	if family == unix.AF_INET6 {
		s.Netmask = 128
	}
	return s
}

// check writes a virtual server of a family (AF_INET, AF_INET6) and reads it back. On a kernel without IPVS, moby/ipvs has no
// error for anything (moby/ipvs issue 27): only what reads back was really written. Where somebody else has one of that mark there
// is an IPVS, and a scheduler that it lacks is found later.
func (v *virtualServers) check(family uint16, scheduler string) error {
	wanted := probe(family, scheduler)
	create := func(t table) error { return t.NewService(wanted) }
	err := v.handle.do("trying IPVS", create)
	if errors.Is(err, unix.EEXIST) {
		others, clearErr := v.clear(wanted)
		if others {
			return nil
		}
		if err = clearErr; err == nil {
			err = v.handle.do("trying IPVS", create)
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("trying IPVS: the kernel has no scheduler %q: %w; load the module ip_vs_%s or choose another scheduler", scheduler, err, scheduler)
	}
	if err != nil {
		return fmt.Errorf("trying IPVS: creating a virtual server: %w; it needs the module ip_vs and CAP_NET_ADMIN", err)
	}
	found, err := call(v.handle, "trying IPVS", func(t table) (*ipvs.Service, error) { return t.GetService(wanted) })
	if err != nil || found.FWMark != checkMark || found.SchedName != scheduler {
		return fmt.Errorf("trying IPVS: the kernel accepted a virtual server, but it does not read back (found %+v, error %v): "+
			"this kernel has no IPVS; load the module ip_vs, or use a kernel that has it", found, err)
	}
	return v.deleteProbe(wanted)
}

// clear deletes what a process left that died in the middle of a check. Anything else there is somebody else's.
func (v *virtualServers) clear(wanted *ipvs.Service) (others bool, err error) {
	found, err := call(v.handle, "trying IPVS", func(t table) (*ipvs.Service, error) { return t.GetService(wanted) })
	if err != nil {
		return false, unless(err, unix.ESRCH)
	}
	reals, err := call(v.handle, "trying IPVS", func(t table) ([]*ipvs.Destination, error) { return t.GetDestinations(wanted) })
	if err != nil {
		return false, err
	}
	if found.Flags&persistent == 0 || found.Timeout != checkTimeout || len(reals) > 0 {
		return true, nil
	}
	return false, v.deleteProbe(wanted)
}

func (v *virtualServers) deleteProbe(s *ipvs.Service) error {
	err := v.handle.do("trying IPVS", func(t table) error { return t.DelService(s) })
	if err = unless(err, unix.ESRCH); err != nil {
		return fmt.Errorf("trying IPVS: deleting the virtual server that was made for it: %w", err)
	}
	return nil
}
