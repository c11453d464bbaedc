//go:build netns

package probes

import (
	"net"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/analysis"
	"github.com/hitless/hitless/record"
)

// fault is a rule of the router for forwarded packets.
type fault []expr.Any

// The faults: drop, and the ways of a firewall to reject (include/uapi/linux/netfilter/nf_tables.h).
var (
	dropping    = fault{&expr.Verdict{Kind: expr.VerdictDrop}}
	rejecting   = fault{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3}}
	unreachable = fault{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 1}}
	// Only TCP can be reset.
	resetting = fault{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}
)

// injectFault injects the fault at a time of the run, and returns its shortest and longest possible duration.
func (w *network) injectFault(base int64, from, length time.Duration, what fault) (least, most time.Duration, err error) {
	began, ended, err := w.withRules(base, from, length, func(n *nftables.Conn, table *nftables.Table) {
		chain := n.AddChain(&nftables.Chain{Name: "all", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityMangle})
		n.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: what})
	})
	return ended[0] - began[1], ended[1] - began[0], err
}

// withRules gives the router rules for a time, and returns the times of the run between which they began and between which they ended.
func (w *network) withRules(base int64, from, length time.Duration, lay func(*nftables.Conn, *nftables.Table)) (began, ended [2]time.Duration, err error) {
	c, err := newClock(base)
	if err != nil {
		return began, ended, err
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "fault"}
	flush := func(at time.Duration, bounds *[2]time.Duration, change func(*nftables.Conn)) error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		change(conn)
		time.Sleep(at - c.Now()) // the schedule of the fault, not a wait for something
		bounds[0] = c.Now()
		err = conn.Flush()
		bounds[1] = c.Now()
		return err
	}
	err = w.router.do(func() error {
		err := flush(from, &began, func(n *nftables.Conn) { lay(n, n.AddTable(table)) })
		if err != nil {
			return err
		}
		return flush(began[1]+length, &ended, func(n *nftables.Conn) { n.DelTable(table) })
	})
	return began, ended, err
}

// judgedOutages analyses attempts as those of a run, and returns the outages of their lane.
func judgedOutages(t *testing.T, l Lane, attempts []record.Attempt) []analysis.OutageReport {
	t.Helper()
	return judged(t, []Lane{l}, attempts).Lanes[0].Outages
}

// judged returns the report of a run with these attempts.
func judged(t *testing.T, lanes []Lane, attempts []record.Attempt) *analysis.Report {
	t.Helper()
	dir := t.TempDir()
	w, err := record.NewHistoryWriter(dir, record.Run{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lanes {
		for _, e := range l.Events(0) {
			w.Event(e)
		}
	}
	for _, a := range attempts {
		w.Attempt(a)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := record.OpenUnsealed(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := analysis.Build(h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each fault of the router gives one outage on each protocol, with the expected class and with bounds that contain its length.
func TestOutageBoundsContainTheFault(t *testing.T) {
	for _, test := range []struct {
		name, protocol string
		what           fault
		class          record.Class
		offends        bool // the fault sends an ICMP error
		// TCP retransmits after 200 ms and then at growing intervals, so that a stall needs a longer fault, and lasts longer.
		longer bool
	}{
		{name: "drop", protocol: ProtocolTCPNew, what: dropping, class: record.Delayed},
		{name: "reject", protocol: ProtocolTCPNew, what: rejecting, class: record.Rejected, offends: true},
		{name: "unreachable", protocol: ProtocolTCPNew, what: unreachable, class: record.Unreachable, offends: true},
		{name: "refuse", protocol: ProtocolTCPNew, what: resetting, class: record.Refused},
		{name: "drop", protocol: ProtocolUDPFresh, what: dropping, class: record.ReplyTimeout},
		{name: "reject", protocol: ProtocolUDPFresh, what: rejecting, class: record.Rejected, offends: true},
		{name: "drop", protocol: ProtocolUDPSticky, what: dropping, class: record.ReplyTimeout},
		{name: "unreachable", protocol: ProtocolUDPSticky, what: unreachable, class: record.Unreachable, offends: true},
		{name: "drop", protocol: ProtocolTCPLong, what: dropping, class: record.Stalled, longer: true},
		{name: "reset", protocol: ProtocolHTTPReuse, what: resetting, class: record.Refused},
	} {
		t.Run(test.protocol+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t)
			w.serve(t, func(l net.Listener) { serveKeepAlive(l, func(c *net.TCPConn, _ int) bool { return writeAnswer(c) }) })
			w.serveDatagrams(t, "10.0.0.11:8080", answerAs("web-1"))
			base := monotonic(t)
			l := wiredLane(100)
			l.Protocol = test.protocol
			if l.overUDP() {
				l.ReplyDeadline = 400 * time.Millisecond
			}
			length := 200 * time.Millisecond
			if test.longer {
				length = 700 * time.Millisecond
			}
			type lasted struct {
				least, most time.Duration
				err         error
			}
			done := make(chan lasted, 1)
			go func() {
				least, most, err := w.injectFault(base, 303*time.Millisecond, length, test.what)
				done <- lasted{least, most, err}
			}()
			attempts := w.probe(t, base, 100*time.Millisecond, l, 130)
			truth := <-done
			if truth.err != nil {
				t.Fatal(truth.err)
			}
			outages := judgedOutages(t, l, attempts)
			if len(outages) != 1 {
				t.Fatalf("%d outages, want one: %+v", len(outages), outages)
			}
			o := outages[0]
			upper := o.UpperMs
			if test.longer { // the last late answers were faster than the stall threshold
				upper += float64(DefaultStallAfter.Milliseconds())
			}
			if upper < truth.least.Seconds()*1e3 || (!test.longer && o.LowerMs > truth.most.Seconds()*1e3) {
				t.Errorf("%v to %v were injected, the bounds are %v to %v ms", truth.least, truth.most, o.LowerMs, o.UpperMs)
			}
			// Answers in flight when the fault begins meet it on their way back, and fail with another class. A busy backend has
			// some of them.
			if n := o.Classes[test.class.String()]; n < 10 || n < o.Failed()/2 {
				t.Errorf("classes %v, want %v except for attempts in flight at the begin", o.Classes, test.class)
			}
			for _, a := range attempts {
				if a.Class == test.class && a.Offender.IsValid() != test.offends {
					t.Errorf("attempt %d is %v by %v", a.Seq, a.Class, a.Offender)
				}
			}
		})
	}
}
