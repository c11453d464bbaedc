package balancer

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hitless/hitless/record"
)

func TestHAProxyConfiguration(t *testing.T) {
	nodes := []node{{"node-1", 1, netip.MustParseAddr("10.0.0.11")}, {"node-2", 2, netip.MustParseAddr("10.0.0.12")}}
	for _, c := range []struct {
		golden    string
		checkSpec checkSpec
		requests  requests
	}{
		{"testdata/local.cfg", checkSpec{target: TargetHealthCheckNodePort, port: 31000, path: "/"}, requests{}},
		{"testdata/nodeport.cfg", checkSpec{target: TargetNodePort, port: 30080}, requests{}},
		{"testdata/requests.cfg", checkSpec{target: TargetNodePort, port: 30080}, requests{byClient: true, restricted: true,
			clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.7/32")}}},
	} {
		got := haproxyConfig(table{service: "default/web", addr: netip.MustParseAddr("203.0.113.10"), all: nodes, checkSpec: c.checkSpec, requests: c.requests,
			ports: []port{{"TCP", 80, 30080}, {"UDP", 53, 30053}, {"TCP", 81, 0}, {"TCP", 443, 30443}}},
			Config{Interval: 5 * time.Second, Fall: 3, Rise: 1}, "hitless-balancer-1")
		want, err := os.ReadFile(c.golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.golden, diff)
		}
	}
}

// The lines are HAProxy 2.6's own.
func TestHealthLines(t *testing.T) {
	const now = time.Minute
	for _, c := range []struct {
		line   string
		known  bool
		node   string
		status string
		pass   bool
		up     bool
		from   time.Duration
	}{
		{`Health check for server IPv4_80-backend/node-1 succeeded, reason: Layer7 check passed, code: 200, check duration: 0ms, status: 3/3 UP.`,
			true, "node-1", "200", true, true, now - 10*time.Millisecond},
		{`Health check for server IPv4_80-backend/node-2 failed, reason: Layer4 connection problem, info: "Connection refused", check duration: 0ms, status: 0/1 DOWN.`,
			true, "node-2", "refused", false, false, now - 10*time.Millisecond},
		{`Health check for server IPv4_80-backend/node-1 failed, reason: Layer7 wrong status, code: 503, info: "Service Unavailable", check duration: 1ms, status: 2/3 UP.`,
			true, "node-1", "503", false, true, now - 11*time.Millisecond},
		{`Health check for server IPv4_80-backend/node-1 failed, reason: Layer7 timeout, check duration: 5001ms, status: 0/1 DOWN.`,
			true, "node-1", "timeout", false, false, now - 5011*time.Millisecond},
		{`Server IPv4_80-backend/node-1 is DOWN. 0 active and 0 backup servers left. 0 sessions active, 0 requeued, 0 remaining in queue.`,
			false, "", "", false, false, 0},
		{`backend IPv4_80-backend has no server available!`, false, "", "", false, false, 0},
	} {
		v, known := readHealthLine(c.line, now)
		want := serverCheck{}
		if c.known {
			want = serverCheck{port: 80, node: c.node, checkResult: checkResult{at: now, pass: c.pass, status: c.status}, up: c.up, from: c.from}
		}
		if known != c.known || v != want {
			t.Errorf("%s\ngot  %+v, %t\nwant %+v, %t", c.line, v, known, want, c.known)
		}
	}
}

// The lines are HAProxy 2.6's own.
func TestFlowLines(t *testing.T) {
	const now = time.Minute
	for _, c := range []struct {
		line  string
		known bool
		port  uint16
		flow  record.Flow
	}{
		{"flow 80 10.200.0.1:2000 node-1 12", true, 80, record.Flow{Source: netip.MustParseAddrPort("10.200.0.1:2000"), Node: "node-1", At: now - 12*time.Millisecond}},
		{"flow 80 10.200.0.1:2000 node-1 +70000", true, 80, record.Flow{Source: netip.MustParseAddrPort("10.200.0.1:2000"), Node: "node-1"}},
		{"flow 80 10.200.0.1:2000 <NOSRV> 1", false, 0, record.Flow{}},
		{"flow 80 10.200.0.1:2000 node-1 -", false, 0, record.Flow{}},
		{"flow 80 10.200.0.1 node-1 1", false, 0, record.Flow{}},
		{"Server IPv4_80-backend/node-1 is UP", false, 0, record.Flow{}},
	} {
		if port, f, ok := readFlowLine(c.line, now); ok != c.known || (ok && (port != c.port || f != c.flow)) {
			t.Errorf("%s\ngot  %d %+v, %t\nwant %d %+v, %t", c.line, port, f, ok, c.port, c.flow, c.known)
		}
	}
}
