package verify

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/hitless/hitless/record"
	"github.com/hitless/hitless/record/recordtest"
)

const backend = "10.244.9.9:8080"

// tracked is a lab whose failed attempts were looked up in the nodes' connection tracking, and its capture. Each SYN goes on from its node
// to the backend, if forwarded says so.
func tracked(t *testing.T, forwarded bool, lookUp func(node string) (inNode, withBackend string)) (*recordtest.Lab, *bytes.Reader) {
	t.Helper()
	s, w := losing(), newWire(t, recordtest.NodeNames...)
	var nodes []string
	for i := range s.Attempts {
		a, target := &s.Attempts[i], recordtest.WebAddress
		node := s.Services[target].Choose(a.Source, target, a.Start)
		w.connect(a, target, node)
		if forwarded {
			w.write(node, a.Start+50*time.Microsecond, w.tcp(netip.MustParseAddrPort("10.0.0.12:4711"), netip.MustParseAddrPort(backend), &layers.TCP{SYN: true, Seq: w.seq}, 0))
		}
		if a.Class != record.OK {
			nodes = append(nodes, node)
		}
	}
	s.Choose(func(failed int) (string, string, bool) {
		node, address := lookUp(nodes[failed])
		return node, address, true
	})
	return s, w.capture(0)
}

func honest(node string) (string, string) { return node, backend }

func TestConnectionTrackingAgreesWithThePackets(t *testing.T) {
	for name, c := range map[string]struct {
		forwarded bool
		lookUp    func(node string) (string, string)
		want      func(all int) Conntrack
	}{
		"over another node": {true, honest, func(all int) Conntrack { return Conntrack{Lookups: all, Nodes: all, Backends: all} }},
		"on the same node":  {false, honest, func(all int) Conntrack { return Conntrack{Lookups: all, Nodes: all, Unseen: all} }},
		"by no node":        {true, func(string) (string, string) { return "", "" }, func(all int) Conntrack { return Conntrack{Lookups: all, Absent: all} }},
	} {
		t.Run(name, func(t *testing.T) {
			s, packets := tracked(t, c.forwarded, c.lookUp)
			r := verified(t, s, packets)
			if !r.Agrees() || r.Conntrack == nil || r.Conntrack.Lookups < 100 || *r.Conntrack != c.want(r.Conntrack.Lookups) {
				t.Errorf("%+v, %.1000v", r.Conntrack, r.Findings)
			}
		})
	}
}

func TestOtherConnectionTrackingIsFound(t *testing.T) {
	for name, lookUp := range map[string]func(node string) (string, string){
		"another node":    func(string) (string, string) { return "node-elsewhere", backend },
		"another backend": func(node string) (string, string) { return node, "10.244.9.8:8080" },
	} {
		t.Run(name, func(t *testing.T) {
			s, packets := tracked(t, true, lookUp)
			if r := verified(t, s, packets); r.Agrees() || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == OtherKernel }) {
				t.Errorf("%.1000v are the findings, want one about the kernel", r.Findings)
			}
		})
	}
}

func TestCountersOfTheClientsKernel(t *testing.T) {
	s := losing()
	opened, repeated := len(s.Attempts), 0
	for _, a := range s.Attempts {
		if a.Class == record.ConnectTimeout || a.Class == record.Delayed {
			repeated++
		}
	}
	for counters, agree := range map[string]bool{
		fmt.Sprintf(`{"opened":%d,"repeated":%d}`, opened, repeated):   true,
		fmt.Sprintf(`{"opened":%d,"repeated":%d}`, opened+1, repeated): false,
		fmt.Sprintf(`{"opened":%d,"repeated":%d}`, opened, repeated-1): false,
	} {
		r := verified(t, s, captured(t, s).capture(0))
		if err := r.CompareCounters(strings.NewReader(counters)); err != nil || r.Agrees() != agree {
			t.Errorf("%s: agrees %t, want %t: %v, %v", counters, r.Agrees(), agree, err, r.Findings)
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "kernel of the client") {
			t.Errorf("%v:\n%s", err, b.String())
		}
	}
	for _, damaged := range []string{"", "{", `{"opened":"x"}`, `{"closed":1}`} {
		r := verified(t, s, captured(t, s).capture(0))
		if err := r.CompareCounters(strings.NewReader(damaged)); err == nil {
			t.Errorf("%q are counters", damaged)
		}
	}
}
