//go:build netns

package probes

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/hitless/hitless/record"
)

// forgetConnections deletes the router's conntrack entries and disables the pickup of established connections, like the restart of a
// proxy that keeps connection state.
func (w *network) forgetConnections(t *testing.T, base int64, at time.Duration) {
	t.Helper()
	w.router.sysctl(t, "net.netfilter.nf_conntrack_tcp_loose", "0")
	c, err := newClock(base)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(at - c.Now()) // the scheduled time of the fault
	w.router.must(t, func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}

// An established connection can fail in four ways, which give two classes only. The fresh connection shows whether only the connection
// failed or the path, and the report has that in its cause.
func TestFreshConnectionSeparatesConnectionFromPath(t *testing.T) {
	const at = 1100 * time.Millisecond
	for _, test := range []struct {
		name  string
		fault func(t *testing.T, w *network, base int64)
		ends  bool // the backend ends a connection itself
		class record.Class
		fresh record.Class
		says  string
	}{
		{name: "the backend resets a connection", ends: true, class: record.Reset, fresh: record.OK, says: "was answered at once"},
		{name: "the router resets everything", class: record.Reset, fresh: record.Refused, says: "nothing answered",
			fault: func(t *testing.T, w *network, base int64) {
				if _, _, err := w.injectFault(base, at, 3*time.Second, resetting); err != nil {
					t.Error(err)
				}
			}},
		{name: "the router forgets its connections", class: record.ReplyTimeout, fresh: record.OK, says: "answered at once",
			fault: func(t *testing.T, w *network, base int64) { w.forgetConnections(t, base, at) }},
		{name: "the router drops everything", class: record.ReplyTimeout, fresh: record.ConnectTimeout, says: "nothing answered",
			fault: func(t *testing.T, w *network, base int64) {
				if _, _, err := w.injectFault(base, at, 10*time.Second, dropping); err != nil {
					t.Error(err)
				}
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newNetwork(t)
			w.serve(t, func(l net.Listener) {
				serveConnections(l, func(c *net.TCPConn, connection, request int) bool {
					if test.ends && connection == 0 && request == 3 {
						_ = c.SetLinger(0)
						return false
					}
					return writeAnswer(c)
				})
			})
			base := monotonic(t)
			l := wiredLane(5)
			l.Protocol, l.Connections, l.StallAfter, l.Fresh = ProtocolTCPLong, 1, 800*time.Millisecond, freshTestID
			l.DialDeadline, l.ReplyDeadline = 1500*time.Millisecond, 1500*time.Millisecond
			done := make(chan struct{})
			go func() {
				defer close(done)
				if test.fault != nil {
					test.fault(t, w, base)
				}
			}()
			var got []record.Attempt
			w.client.must(t, func() (err error) { got, err = probeFrom(base, 100*time.Millisecond, l, 12); return err })
			<-done
			own, fresh := numbered(t, got)[l.ID], numbered(t, got)[freshTestID]
			if first := firstFailed(t, own); first.Class != test.class {
				t.Errorf("the first attempt that failed is %v (%s), want %v", first.Class, first.Detail, test.class)
			}
			if len(fresh) == 0 {
				t.Fatal("there was no fresh connection")
			}
			for _, f := range fresh {
				if f.Class != test.fresh {
					t.Errorf("a fresh connection of %v is %v (%s), want %v", f.Start, f.Class, f.Detail, test.fresh)
				}
			}
			outages := judged(t, []Lane{l}, got).Lanes[0].Outages
			if len(outages) != 1 || !strings.Contains(outages[0].Cause.Text, test.says) {
				t.Errorf("outages %+v, want one whose cause says %q", outages, test.says)
			}
		})
	}
}
