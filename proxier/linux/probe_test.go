package linux

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"
)

// fakeHandle is an IPVS handle for probes. It identifies virtual servers by family and mark, or by family, protocol,
// address and port.
type fakeHandle struct {
	ipvsHandle
	servers          map[string]ipvs.Service
	reals            []*ipvs.Destination // real servers of each
	missingScheduler string              // missing scheduler
}

func serviceKey(s *ipvs.Service) string {
	if s.FWMark != 0 {
		return fmt.Sprint(s.AddressFamily, s.FWMark)
	}
	return fmt.Sprint(s.AddressFamily, s.Protocol, s.Address, s.Port)
}

func (h *fakeHandle) NewService(s *ipvs.Service) error {
	if _, exists := h.servers[serviceKey(s)]; exists {
		return unix.EEXIST
	}
	if s.SchedName == h.missingScheduler {
		return unix.ENOENT
	}
	h.servers[serviceKey(s)] = *s
	return nil
}

func (h *fakeHandle) GetService(s *ipvs.Service) (*ipvs.Service, error) {
	found, exists := h.servers[serviceKey(s)]
	if !exists {
		return nil, unix.ESRCH
	}
	return &found, nil
}

func (h *fakeHandle) DelService(s *ipvs.Service) error {
	if _, exists := h.servers[serviceKey(s)]; !exists {
		return unix.ESRCH
	}
	delete(h.servers, serviceKey(s))
	return nil
}

func (h *fakeHandle) GetDestinations(*ipvs.Service) ([]*ipvs.Destination, error) { return h.reals, nil }

func (h *fakeHandle) virtualServers() *virtualServers {
	return &virtualServers{&handle{deadline: time.Minute, noReply: func() {}, open: func() (ipvsHandle, error) { return h, nil }}}
}

// No virtual server of a Service can affect the probe.
func TestProbeNextToServices(t *testing.T) {
	h := &fakeHandle{servers: map[string]ipvs.Service{}, reals: []*ipvs.Destination{{Address: net.IP{10, 244, 0, 1}, Port: 80}}}
	for _, s := range []ipvs.Service{
		{AddressFamily: unix.AF_INET, Address: net.IP{192, 0, 2, 1}, Protocol: 6, Port: 9, SchedName: "rr"},
		{AddressFamily: unix.AF_INET6, Address: net.ParseIP("2001:db8::1"), Protocol: 6, Port: 9, SchedName: "rr"},
	} {
		h.servers[serviceKey(&s)] = s
	}
	for _, family := range []uint16{unix.AF_INET, unix.AF_INET6} {
		if err := h.virtualServers().probe(family, "rr"); err != nil {
			t.Errorf("family %d: %v", family, err)
		}
	}
	if len(h.servers) != 2 {
		t.Errorf("after the probes there are %+v", h.servers)
	}
}

// The probe succeeds next to any other server with its mark, and deletes only a leftover of its own.
func TestProbeWithExistingMark(t *testing.T) {
	for _, family := range []uint16{unix.AF_INET, unix.AF_INET6} {
		for what, test := range map[string]struct {
			change func(*ipvs.Service)
			reals  int
			stays  bool
		}{
			"leftover of a crash": {change: func(s *ipvs.Service) { s.Flags |= 0x2 }},
			"other timeout":       {change: func(s *ipvs.Service) { s.Timeout = 300 }, stays: true},
			"not persistent":      {change: func(s *ipvs.Service) { s.Flags = 0 }, stays: true},
			"with real server":    {change: func(*ipvs.Service) {}, reals: 1, stays: true},
		} {
			found := probeService(family, "wrr")
			test.change(found)
			h := &fakeHandle{servers: map[string]ipvs.Service{serviceKey(found): *found}, reals: make([]*ipvs.Destination, test.reals)}
			if err := h.virtualServers().probe(family, "rr"); err != nil {
				t.Errorf("family %d, existing server %s: %v", family, what, err)
			}
			if _, stays := h.servers[serviceKey(found)]; stays != test.stays {
				t.Errorf("family %d, existing server %s: it remains: %v", family, what, stays)
			}
		}
	}
}

func TestProbeOfMissingScheduler(t *testing.T) {
	h := &fakeHandle{servers: map[string]ipvs.Service{}, missingScheduler: "mh"}
	if err := h.virtualServers().probe(unix.AF_INET, "mh"); err == nil || !strings.Contains(err.Error(), "load the module ip_vs_mh") {
		t.Errorf("error %v does not name the missing module", err)
	}
}
