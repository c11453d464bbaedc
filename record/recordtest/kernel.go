package recordtest

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/hitless/hitless/record"
)

// Choose tells for failed attempts what the kernel had chosen; of the attempts for which backend says nothing, nobody asked.
func (s *Lab) Choose(backend func(failed int) (node, address string, asked bool)) {
	slices.SortFunc(s.Attempts, func(x, y record.Attempt) int { return cmp.Compare(x.Seq, y.Seq) })
	n := 0
	for _, a := range s.Attempts {
		if a.Class == record.OK {
			continue
		}
		if node, address, asked := backend(n); asked {
			s.Event(a.Start+a.Total+time.Millisecond, record.KindChoice, node, a.Source.String(), "chosen", "lane", strconv.Itoa(int(a.Lane)),
				"seq", strconv.FormatUint(a.Seq, 10), "backend", address)
		}
		n++
	}
}

// Look tells a state of the web's virtual server on a node, which a look at from had found otherwise.
func (s *Lab) Look(node string, from, at time.Duration, backends string) {
	attrs := []string{"table", string(record.TableIPVS), "address", WebAddress.Addr().String(), "port", strconv.Itoa(int(WebAddress.Port())), "protocol", "tcp",
		"state", "present", "backends", backends, "fromNs", strconv.FormatInt(int64(from), 10)}
	if backends == "absent" || backends == string(record.TableUnread) {
		attrs[9], attrs[11] = backends, ""
	}
	s.Event(at, record.KindKernelTable, node, WebAddress.String(), "IPVS of "+node+" has "+backends, attrs...)
}

const StaleFor = 4100 * time.Millisecond

// StaleLab is a cluster where the process of one of two pods exits at died, and the node keeps it in its table for staleFor; looks
// are blur apart.
func StaleLab(died, blur time.Duration) *Lab {
	s := NewLab(3)
	s.Services[WebAddress] = &Service{Name: "default/web", Seed: 7}
	s.Balance(WebAddress, 2*time.Second, "node-2")
	s.Pod(Pod{Name: "web-1", Node: "node-2", Address: "10.244.2.7", Service: "default/web", Ready: 2 * time.Second, Gone: died})
	s.Pod(Pod{Name: "web-2", Node: "node-3", Address: "10.244.3.7", Service: "default/web", Ready: 2 * time.Second})
	s.Phase("baseline", 3*time.Second)
	s.Phase("scenario", 8*time.Second)
	s.Phase("end", 30*time.Second)
	s.Look("node-2", 0, 2500*time.Millisecond, "10.244.2.7:8080=1,10.244.3.7:8080=1")
	s.Look("node-2", died+StaleFor-blur, died+StaleFor+blur, "10.244.3.7:8080=1")
	s.Faults = append(s.Faults, Fault{AnyLane: true, Node: "node-2", From: died, To: died + StaleFor, Class: record.Refused})
	s.Probe(Lane{ID: 0, Name: "web", Target: WebAddress, Rate: 100, From: 3 * time.Second, To: 30 * time.Second})
	return s
}

// StaleRules is staleLab with the rules of a proxy in nftables or iptables mode in place of IPVS.
func StaleRules(mode string) *Lab {
	s := StaleLab(10*time.Second, 5*time.Millisecond)
	s.Run.Subject.Mode = mode
	for _, e := range s.Events {
		if e.Kind == record.KindKernelTable {
			e.Attrs["table"] = "nftables"
		}
	}
	return s
}
