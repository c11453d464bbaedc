// Package routing checks the behaviour of Services from API objects to packets of clients and pods: which pods answer, and which
// client address they see. It has a node of its own with the proxy under test, and records what it saw. It does not judge a proxy.
package routing

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/hitless/hitless/record"
)

// Family is the address family of the Services.
type Family record.Family

// The families.
const (
	IPv4 = Family(record.IPv4)
	IPv6 = Family(record.IPv6)
)

// ParseFamily reads a family.
func ParseFamily(text string) (Family, error) {
	if f := Family(text); f == IPv4 || f == IPv6 {
		return f, nil
	}
	return "", fmt.Errorf("family=%s: give %s or %s", text, IPv4, IPv6)
}

func (f Family) protocol() v1.IPFamily { return v1.IPFamily(record.Family(f).API()) }

// prefixes are the beginnings of the addresses of Services.
var prefixes = map[Family]map[string]string{
	IPv4: {"cluster": "10.96.0.", "lb": "203.0.113.", "external": "203.0.113."},
	IPv6: {"cluster": "fd00:96::", "lb": "2001:db8:cafe::", "external": "2001:db8:cafe::"},
}

// address is an address of the Service with a number. IPv6 addresses have the same digits at their end.
func (f Family) address(kind string, n int) string { return prefixes[f][kind] + strconv.Itoa(n) }

// The names of clients in loadBalancerSourceRanges.
const (
	clients   = "client"
	strangers = "stranger"
)

// sources is the range of the clients of a name.
func (f Family) sources(who string) string {
	ranges := map[Family]map[string]string{IPv4: {clients: "192.0.2.0/24", strangers: "192.0.3.0/24"}, IPv6: {clients: "2001:db8::/64", strangers: "2001:db8:3::/64"}}
	return ranges[f][who]
}

// Case is a request and its expected outcome.
type Case struct {
	Name   string
	Client string // name of the client host
	// Target is an address of a Service by its number (cluster/1:80, lb/1:80, external/101:80, with a 6 for IPv6), or of the node
	// (node:30001, node2:30001); with prefix udp! or sctp!. Or it is check! and the port of a health check at the node.
	Target string
	// Want are the names of exactly the hosts that reply; or refused, dropped, or one for any single pod.
	Want   string
	Source string // client address that the hosts see: itself or node; empty if unspecified

	NFTables     string // outcome of kube-proxy in this mode where it is another than the promise
	IPVS         string
	Promised     string // what the API promises, where it is less than Want, or other
	WaitForDrain bool   // the bundled proxier keeps an address, and refuses, until its drains end
	Both         bool   // the Service has both families
	Own          bool   // no promise: it depends on a flag or an annotation of a proxy
	Features     []string
}

// Blocked is the outcome of a connection that is refused or dropped.
const Blocked = "blocked"

// Promise is what every proxy should do. The weight of a health check is a header that not every proxy has.
func (c Case) Promise() string {
	if c.Promised != "" {
		return c.Promised
	}
	status, _, _ := strings.Cut(c.Want, ",")
	return status
}

// resolve returns the protocol and the address of a target.
func (f Family) resolve(target string) (protocol string, to netip.AddrPort, err error) {
	protocol, rest, other := strings.Cut(target, "!")
	if !other {
		protocol, rest = "tcp", target
	}
	host, port, _ := strings.Cut(rest, ":")
	if protocol == "check" {
		host, port = "node", rest
	}
	kind, number, _ := strings.Cut(host, "/")
	if six, is := strings.CutSuffix(kind, "6"); is {
		kind, f = six, IPv6
	}
	nodes := map[Family]map[string]string{IPv4: {"node": nodeAddr, "node2": nodeSecond}, IPv6: {"node": nodeAddr6, "node2": nodeOther6}}
	text := nodes[f][kind]
	if text == "" {
		text = prefixes[f][kind] + number
	}
	to, err = netip.ParseAddrPort("[" + text + "]:" + port)
	if err != nil {
		to, err = netip.ParseAddrPort(text + ":" + port)
	}
	return protocol, to, err
}

// MaxOthers is the largest number of other Services, by the range of their addresses.
const MaxOthers = 10000

// CostChanges is how often a change is measured with each number of other Services.
const CostChanges = 5

// Holds reports whether a check saw what was wanted.
func Holds(c record.Check) bool {
	alone := c.Got == "a" || c.Got == "b" || c.Got == "r"
	got := c.Got == c.Want || strings.HasPrefix(c.Got, c.Want+", ") || c.Want == "one" && alone || c.Want == Blocked && (c.Got == "refused" || c.Got == "dropped")
	return got && (c.Source == "" || c.Seen == "" || c.Seen == c.Source)
}

// Keeps reports whether a check keeps what the API promises. It promises no client address where policy Local is not asked for, so that
// pods of the node may see the client's own. Pods of other nodes must see the node's, or their replies would not come back through it.
func Keeps(c record.Check) bool {
	if c.Source == "node" {
		c.Seen = c.SeenElsewhere
	}
	return Holds(c)
}
