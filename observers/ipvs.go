//go:build linux

package observers

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"
)

// openIPVS opens the IPVS table of a node. The returned functions are for one goroutine; read opens the table anew when the node's
// namespace was replaced.
func openIPVS(node Node) (read func([]ServiceAddress) (backendTable, error), end func(), err error) {
	var handle *ipvs.Handle
	life := 0
	open := func() error {
		life = node.Generation()
		return node.Do(func() (err error) {
			handle, err = ipvs.New("")
			return err
		})
	}
	end = func() {
		if handle != nil {
			handle.Close()
		}
		handle = nil
	}
	if err := open(); err != nil {
		end()
		return nil, nil, err
	}
	read = func(addresses []ServiceAddress) (backendTable, error) {
		if node.Generation() != life {
			end()
			if err := open(); err != nil {
				return nil, err
			}
		}
		return readIPVS(handle, addresses)
	}
	return read, end, nil
}

// readIPVS reads the virtual servers of the addresses; those that do not exist are left out.
func readIPVS(handle *ipvs.Handle, addresses []ServiceAddress) (backendTable, error) {
	t := backendTable{}
	for _, s := range addresses {
		service := &ipvs.Service{Address: net.IP(s.Address.Addr().AsSlice()), Port: s.Address.Port(), Protocol: unix.IPPROTO_TCP,
			AddressFamily: unix.AF_INET}
		if s.UDP {
			service.Protocol = unix.IPPROTO_UDP
		}
		if s.Address.Addr().Is6() {
			service.AddressFamily = unix.AF_INET6
		}
		if _, err := handle.GetService(service); errors.Is(err, unix.ESRCH) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading the virtual server %s: %w", s.Address, err)
		}
		destinations, err := handle.GetDestinations(service)
		if err != nil {
			return nil, fmt.Errorf("listing the real servers of %s: %w", s.Address, err)
		}
		weights := map[netip.AddrPort]int{}
		for _, d := range destinations {
			if address, ok := netip.AddrFromSlice(d.Address); ok {
				weights[netip.AddrPortFrom(address.Unmap(), d.Port)] = d.Weight
			}
		}
		t[s] = weights
	}
	return t, nil
}
