package tables

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
)

// lookerOf returns what looks at the IPVS table of a node. It keeps the node's namespace by its socket, takes the new one when
// the node has been made anew, and is for one goroutine.
func lookerOf(node *topology.Node) (look func([]Server) (Table, error), err error) {
	var handle *ipvs.Handle
	life := 0
	open := func() error {
		life = node.Life()
		return node.Do(func() (err error) {
			handle, err = ipvs.New("")
			return err
		})
	}
	if err := open(); err != nil {
		return nil, err
	}
	return func(targets []Server) (Table, error) {
		if node.Life() != life {
			handle.Close()
			if err := open(); err != nil {
				return nil, err
			}
		}
		return lookFor(handle, targets)
	}, nil
}

// lookFor reads those of the virtual servers that are there.
func lookFor(handle *ipvs.Handle, targets []Server) (Table, error) {
	t := Table{}
	for _, target := range targets {
		service := &ipvs.Service{Address: net.IP(target.Address.Addr().AsSlice()), Port: target.Address.Port(), Protocol: unix.IPPROTO_TCP,
			AddressFamily: unix.AF_INET}
		if target.UDP {
			service.Protocol = unix.IPPROTO_UDP
		}
		if target.Address.Addr().Is6() {
			service.AddressFamily = unix.AF_INET6
		}
		if _, err := handle.GetService(service); errors.Is(err, unix.ESRCH) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("asking for the virtual server %s: %w", target.Address, err)
		}
		destinations, err := handle.GetDestinations(service)
		if err != nil {
			return nil, fmt.Errorf("listing the real servers of %s: %w", target.Address, err)
		}
		weights := map[netip.AddrPort]int{}
		for _, d := range destinations {
			if address, ok := netip.AddrFromSlice(d.Address); ok {
				weights[netip.AddrPortFrom(address.Unmap(), d.Port)] = d.Weight
			}
		}
		t[target] = weights
	}
	return t, nil
}
