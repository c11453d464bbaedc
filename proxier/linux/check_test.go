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

// holding is a kernel's IPVS as far as a check of it goes: it finds virtual servers by family and mark, or by family, protocol,
// address and port.
type holding struct {
	table
	servers map[string]ipvs.Service
	reals   []*ipvs.Destination // of each
	lacks   string              // scheduler
}

func at(s *ipvs.Service) string {
	if s.FWMark != 0 {
		return fmt.Sprint(s.AddressFamily, s.FWMark)
	}
	return fmt.Sprint(s.AddressFamily, s.Protocol, s.Address, s.Port)
}

func (h *holding) NewService(s *ipvs.Service) error {
	if _, exists := h.servers[at(s)]; exists {
		return unix.EEXIST
	}
	if s.SchedName == h.lacks {
		return unix.ENOENT
	}
	h.servers[at(s)] = *s
	return nil
}

func (h *holding) GetService(s *ipvs.Service) (*ipvs.Service, error) {
	found, exists := h.servers[at(s)]
	if !exists {
		return nil, unix.ESRCH
	}
	return &found, nil
}

func (h *holding) DelService(s *ipvs.Service) error {
	if _, exists := h.servers[at(s)]; !exists {
		return unix.ESRCH
	}
	delete(h.servers, at(s))
	return nil
}

func (h *holding) GetDestinations(*ipvs.Service) ([]*ipvs.Destination, error) { return h.reals, nil }

func (h *holding) virtualServers() *virtualServers {
	return &virtualServers{&handle{deadline: time.Minute, lost: func() {}, open: func() (table, error) { return h, nil }}}
}

// A Service may have whatever address and port it likes: its virtual server is no reason against the next start.
func TestCheckWhereServicesAre(t *testing.T) {
	h := &holding{servers: map[string]ipvs.Service{}, reals: []*ipvs.Destination{{Address: net.IP{10, 244, 0, 1}, Port: 80}}}
	for _, s := range []ipvs.Service{
		{AddressFamily: unix.AF_INET, Address: net.IP{192, 0, 2, 1}, Protocol: 6, Port: 9, SchedName: "rr"},
		{AddressFamily: unix.AF_INET6, Address: net.ParseIP("2001:db8::1"), Protocol: 6, Port: 9, SchedName: "rr"},
	} {
		h.servers[at(&s)] = s
	}
	for _, family := range []uint16{unix.AF_INET, unix.AF_INET6} {
		if err := h.virtualServers().check(family, "rr"); err != nil {
			t.Errorf("family %d: %v", family, err)
		}
	}
	if len(h.servers) != 2 {
		t.Errorf("after the checks there are %+v", h.servers)
	}
}

// Whatever stands where the check would make its own, there is an IPVS. It deletes what one that died left there, and nothing else.
func TestCheckMeetsAnother(t *testing.T) {
	for _, family := range []uint16{unix.AF_INET, unix.AF_INET6} {
		for what, test := range map[string]struct {
			change func(*ipvs.Service)
			reals  int
			stays  bool
		}{
			"left by one that died":  {change: func(s *ipvs.Service) { s.Flags |= 0x2 }},
			"with another timeout":   {change: func(s *ipvs.Service) { s.Timeout = 300 }, stays: true},
			"that is not persistent": {change: func(s *ipvs.Service) { s.Flags = 0 }, stays: true},
			"with a real server":     {change: func(*ipvs.Service) {}, reals: 1, stays: true},
		} {
			found := probe(family, "wrr")
			test.change(found)
			h := &holding{servers: map[string]ipvs.Service{at(found): *found}, reals: make([]*ipvs.Destination, test.reals)}
			if err := h.virtualServers().check(family, "rr"); err != nil {
				t.Errorf("family %d, one %s: %v", family, what, err)
			}
			if _, stays := h.servers[at(found)]; stays != test.stays {
				t.Errorf("family %d, one %s: it stays: %v", family, what, stays)
			}
		}
	}
}

func TestCheckForAScheduler(t *testing.T) {
	h := &holding{servers: map[string]ipvs.Service{}, lacks: "mh"}
	if err := h.virtualServers().check(unix.AF_INET, "mh"); err == nil || !strings.Contains(err.Error(), "load the module ip_vs_mh") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}
