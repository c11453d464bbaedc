//go:build linux

package observers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/record"
)

// ipvsPoller reads the IPVS table of a node after each notification, with growing pauses.
type ipvsPoller struct {
	*tableRecorder
	failed chan struct{} // an attempt failed
}

func newIPVSPoller(node string, read func() (backendTable, error), recorder record.Recorder, now func() time.Duration) *ipvsPoller {
	return &ipvsPoller{newTableRecorder(node, tableIPVS, read, recorder, now), make(chan struct{}, 1)}
}

func (p *ipvsPoller) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	step, next, earliest := len(ipvsPauses), time.Time{}, time.Time{}
	restart := func(at int) {
		if at >= step {
			return // the running series of reads is denser
		}
		due := time.Now().Add(ipvsPauses[at])
		if due.Before(earliest) {
			due = earliest
		}
		if step == len(ipvsPauses) || due.Before(next) {
			next = due
		}
		step = at
		timer.Reset(time.Until(next))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			restart(0)
		case <-p.failed:
			restart(firstPauseAfterFailure)
		case <-timer.C:
			began := time.Now()
			if err := p.readAndRecord(); err != nil {
				p.recordEnd(err)
				return
			}
			ended := time.Now()
			earliest = ended.Add(max(minReadInterval, idleFactor*ended.Sub(began)))
			if step++; step < len(ipvsPauses) {
				if next = ended.Add(ipvsPauses[step]); next.Before(earliest) {
					next = earliest
				}
				timer.Reset(time.Until(next))
			}
		}
	}
}

func (p *ipvsPoller) readAndRecord() error {
	began := p.now()
	found, err := p.read()
	if err != nil {
		return err
	}
	p.recordChanges(found, p.lastAt, p.now(), "")
	p.last, p.lastAt, p.readOnce = found, began, true
	return nil
}

// openIPVS opens the IPVS table of a node. The returned function is for one goroutine; it opens the table anew when the node's
// namespace was replaced.
func openIPVS(node Node) (read func([]ServiceAddress) (backendTable, error), err error) {
	var handle *ipvs.Handle
	life := 0
	open := func() error {
		life = node.Generation()
		return node.Do(func() (err error) {
			handle, err = ipvs.New("")
			return err
		})
	}
	if err := open(); err != nil {
		return nil, err
	}
	return func(addresses []ServiceAddress) (backendTable, error) {
		if node.Generation() != life {
			handle.Close()
			if err := open(); err != nil {
				return nil, err
			}
		}
		return readIPVS(handle, addresses)
	}, nil
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
