package balancer

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hitless/hitless/record"
	corev1 "k8s.io/api/core/v1"
)

// haproxyConfig returns the configuration for one service, as cloud-provider-kind wrote it until May 2024
// (pkg/loadbalancer/proxy.go before commit dde86341).
//
// Differences: no Docker resolver and no daemon mode; it binds the external address only; a socket shows when HAProxy
// is ready; the log on standard output has each change of a health check and the server of each connection. TCP only.
func haproxyConfig(t table, cfg Config, socket string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `global
  log stdout format raw local0 info
  stats socket abns@%s level user

defaults
  log global
  mode tcp
  option log-health-checks
  timeout connect 5000
  timeout client 50000
  timeout server 50000
  default-server init-addr none
`, socket)
	family, source := "IPv4", "%ci:%cp"
	if t.addr.Is6() {
		family, source = "IPv6", "[%ci]:%cp"
	}
	for _, p := range servable(t.ports) {
		name := fmt.Sprintf("%s_%d", family, p.number)
		fmt.Fprintf(&b, `
frontend %[1]s-frontend
  bind %[2]s
  option logasap
  log-format "flow %[3]d %[4]s %%s %%Tt"
  default_backend %[1]s-backend
  # reject connections if all backends are down; for a process that is replaced they always are
  tcp-request connection reject if { nbsrv(%[1]s-backend) lt 1 } !{ stopping }
%[5]s
backend %[1]s-backend
`, name, netip.AddrPortFrom(t.addr, p.number), p.number, source, t.requests.haproxyAdmission())
		if t.requests.byClient {
			b.WriteString("  balance source\n")
		}
		check := "check"
		if t.checkSpec.path != "" {
			b.WriteString("  option httpchk GET /healthz\n")
			check = fmt.Sprintf("check port %d", t.checkSpec.port)
		}
		for _, n := range t.all {
			fmt.Fprintf(&b, "  server %s %s %s inter %dms fall %d rise %d\n", n.name, netip.AddrPortFrom(n.addr, p.nodePort),
				check, cfg.Interval.Milliseconds(), cfg.Fall, cfg.Rise)
		}
	}
	return b.String()
}

// servable returns the ports that HAProxy can serve: TCP ports with a node port.
func servable(ports []port) []port {
	var some []port
	for _, p := range ports {
		if p.protocol == corev1.ProtocolTCP && p.nodePort != 0 {
			some = append(some, p)
		}
	}
	return some
}

// healthLine is what HAProxy 2.x logs with `option log-health-checks` when the status or the count of a check changes.
var healthLine = regexp.MustCompile(`^Health check for server IPv[46]_(\d+)-backend/(\S+) (succeeded|failed), reason: ([^,]+)` +
	`(?:, code: (\d+))?(?:, info: "(.*?)")?(?:, check duration: (\d+)ms)?, status: \d+/\d+ (UP|DOWN)`)

// readHealthLine parses a line of HAProxy's log about a health check, read at time now. The change happened between the
// start of that check and now.
func readHealthLine(text string, now time.Duration) (serverCheck, bool) {
	m := healthLine.FindStringSubmatch(text)
	if m == nil {
		return serverCheck{}, false
	}
	number, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		return serverCheck{}, false
	}
	took, _ := strconv.Atoi(m[7]) // absent: only the margin bounds the change
	v := serverCheck{port: uint16(number), node: m[2], up: m[8] == "UP"}
	v.checkResult = checkResult{at: now, pass: m[3] == "succeeded", status: haproxyStatus(m[4], m[5], m[6])}
	v.from = max(0, now-time.Duration(took)*time.Millisecond-logMargin)
	return v, true
}

// readFlowLine parses a line of HAProxy's log about a connection, read at time now. With `option logasap` HAProxy logs
// when the server has accepted (plus sign before the time), otherwise at the end of the connection. A connection
// without a server has no node.
func readFlowLine(text string, now time.Duration) (port uint16, f record.Flow, ok bool) {
	words := strings.Fields(text)
	if len(words) != 5 || words[0] != "flow" {
		return 0, f, false
	}
	number, err := strconv.ParseUint(words[1], 10, 16)
	source, err2 := netip.ParseAddrPort(words[2])
	lasted, err3 := strconv.ParseInt(strings.TrimPrefix(words[4], "+"), 10, 64)
	if errors.Join(err, err2, err3) != nil || words[3] == "<NOSRV>" {
		return 0, f, false
	}
	return uint16(number), record.Flow{Source: source, Node: words[3],
		At: max(0, now-time.Duration(lasted)*time.Millisecond)}, true
}

// logMargin bounds the delay of a log line, including HAProxy's rounding to milliseconds.
const logMargin = 10 * time.Millisecond

// haproxyStatus maps HAProxy's check_status (management guide, show stat) to the status of a health check event.
func haproxyStatus(reason, code, info string) string {
	switch {
	case code != "":
		return code
	case reason == "Layer4 check passed":
		return "connected"
	case strings.HasSuffix(reason, "timeout"):
		return "timeout"
	case strings.Contains(info, "refused"):
		return "refused"
	case strings.Contains(info, "reset"):
		return "reset"
	case strings.Contains(info, "unreachable"), strings.Contains(info, "No route to host"):
		return "unreachable"
	default:
		return "broken"
	}
}
