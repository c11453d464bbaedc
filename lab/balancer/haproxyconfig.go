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

// haproxyConfig is the configuration for one service, as cloud-provider-kind wrote it until May 2024 (its
// pkg/loadbalancer/proxy.go before commit dde86341), with these differences: no Docker resolver and no daemon, the
// external address in place of every address, a socket that tells when the program is ready, and another log: on
// standard output, with each change of a health check in it, and with the server of every connection, also of those
// without data. TCP only, as there.
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
	for _, p := range servable(t.ports) {
		name := fmt.Sprintf("IPv4_%d", p.number)
		fmt.Fprintf(&b, `
frontend %[1]s-frontend
  bind %[2]s
  option logasap
  log-format "flow %[3]d %%ci:%%cp %%s %%Tt"
  default_backend %[1]s-backend
  # reject connections if all backends are down; for a process that is replaced they always are
  tcp-request connection reject if { nbsrv(%[1]s-backend) lt 1 } !{ stopping }

backend %[1]s-backend
`, name, netip.AddrPortFrom(t.addr, p.number), p.number)
		check := "check"
		if t.question.path != "" {
			b.WriteString("  option httpchk GET /healthz\n")
			check = fmt.Sprintf("check port %d", t.question.port)
		}
		for _, n := range t.all {
			fmt.Fprintf(&b, "  server %s %s %s inter %dms fall %d rise %d\n", n.name, netip.AddrPortFrom(n.addr, p.nodePort),
				check, cfg.Interval.Milliseconds(), cfg.Fall, cfg.Rise)
		}
	}
	return b.String()
}

// servable are the ports that HAProxy can serve: TCP with a node port.
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
var healthLine = regexp.MustCompile(`^Health check for server IPv4_(\d+)-backend/(\S+) (succeeded|failed), reason: ([^,]+)` +
	`(?:, code: (\d+))?(?:, info: "(.*?)")?(?:, check duration: (\d+)ms)?, status: \d+/\d+ (UP|DOWN)`)

// readHealthLine reads a line of HAProxy's log that was written just before now. The change that it tells of lies
// between the start of that check and now.
func readHealthLine(text string, now time.Duration) (verdict, bool) {
	m := healthLine.FindStringSubmatch(text)
	if m == nil {
		return verdict{}, false
	}
	number, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		return verdict{}, false
	}
	took, _ := strconv.Atoi(m[7]) // absent: nothing is known, the margin has to do
	v := verdict{port: uint16(number), node: m[2], up: m[8] == "UP"}
	v.answer = answer{at: now, pass: m[3] == "succeeded", status: haproxyStatus(m[4], m[5], m[6])}
	v.from = max(0, now-time.Duration(took)*time.Millisecond-logMargin)
	return v, true
}

// readFlowLine reads a line of HAProxy's log that was written just before now, about a connection to the port. With
// `option logasap` that is when its server has accepted it (the time has a plus sign then), else when it
// ended. A connection that was given to no server has no node.
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

// logMargin is what a line may take from HAProxy to here, and the millisecond to which it rounds.
const logMargin = 10 * time.Millisecond

// haproxyStatus is the word of record.KindHealthCheck's status for HAProxy's words (its management guide, show stat,
// check_status).
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
