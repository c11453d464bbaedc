//go:build linux

package observers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Dump reads one part of a network namespace's state as text.
type Dump struct {
	File  string // name of the file for the text
	Title string
	// Read reads the state of the calling thread's namespace. An error that is fs.ErrNotExist, or an empty text without an
	// error, means that the kernel or the system has no such state.
	Read func(ctx context.Context) ([]byte, error)
}

// Dumps returns one Dump for each part of the state of a network namespace.
func Dumps() []Dump {
	return []Dump{
		{"ipvs.txt", "the IPVS table (/proc/net/ip_vs, addresses and ports in hexadecimal)", procFile("ip_vs")},
		{"ipvs-connections.txt", "the connections of IPVS (/proc/net/ip_vs_conn)", procFile("ip_vs_conn")},
		{"ipset.txt", "the sets", output("/usr/sbin/ipset", "list")},
		{"iptables.txt", "the rules of iptables", output("/usr/sbin/iptables-save")},
		{"nftables.txt", "the rules of nftables", dumpNFTables},
		{"conntrack.txt", "the connection tracking", dumpConntrack},
		{"sockets.txt", "the sockets", dumpSockets},
		{"addresses.txt", "the addresses", dumpAddresses},
		{"routes.txt", "the routes (/proc/net/route)", procFile("route")},
		{"neighbours.txt", "the neighbours by ARP (/proc/net/arp)", procFile("arp")},
		{"snmp.txt", "the counters (/proc/net/snmp)", procFile("snmp")},
		{"netstat.txt", "further counters of IP and TCP (/proc/net/netstat)", procFile("netstat")},
		{"interfaces.txt", "the counters of interfaces (/proc/net/dev)", procFile("dev")},
		{"backlog.txt", "the packets that each CPU took, dropped and left, of all namespaces (/proc/net/softnet_stat, hexadecimal)", procFile("softnet_stat")},
		{"conntrack-counters.txt", "the counters of the connection tracking (/proc/net/stat/nf_conntrack, hexadecimal)", procFile("stat/nf_conntrack")},
	}
}

func procFile(name string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return os.ReadFile("/proc/thread-self/net/" + name) }
}

// output is the output of a program; fs.ErrNotExist without the program.
func output(command ...string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if _, err := os.Stat(command[0]); err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	}
}

// dumpNFTables prints the rules in the syntax of nft; without nft it prints the expressions of each rule.
func dumpNFTables(ctx context.Context) ([]byte, error) {
	text, err := output("/usr/sbin/nft", "list", "ruleset")(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return dumpNFTExpressions()
	}
	return text, err
}

func dumpNFTExpressions() ([]byte, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return out.Bytes(), err
		}
		fmt.Fprintf(&out, "table %s chain %s\n", c.Table.Name, c.Name)
		for _, rule := range rules {
			fmt.Fprint(&out, " ")
			for _, e := range rule.Exprs {
				fmt.Fprintf(&out, " %T%+v", e, e)
			}
			fmt.Fprintln(&out)
		}
	}
	return out.Bytes(), nil
}

func dumpConntrack(context.Context) ([]byte, error) {
	var lines []string
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			return nil, err
		}
		for _, f := range flows {
			lines = append(lines, f.String()+"\n")
		}
	}
	return sorted(lines), nil
}

func sorted(lines []string) []byte {
	slices.Sort(lines)
	var out bytes.Buffer
	for _, l := range lines {
		out.WriteString(l)
	}
	return out.Bytes()
}

// tcpStates are the names of the states of include/net/tcp_states.h.
var tcpStates = []string{"", "ESTABLISHED", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "CLOSED", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING", "NEW-SYN-RECV"}

func dumpSockets(context.Context) ([]byte, error) {
	var lines []string
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for protocol, list := range map[string]func(uint8) ([]*netlink.Socket, error){"tcp": netlink.SocketDiagTCP, "udp": netlink.SocketDiagUDP} {
			all, err := list(family)
			if err != nil {
				return nil, err
			}
			for _, s := range all {
				lines = append(lines, socketLine(protocol, s))
			}
		}
	}
	return sorted(lines), nil
}

func socketLine(protocol string, s *netlink.Socket) string {
	state := strconv.Itoa(int(s.State))
	if int(s.State) < len(tcpStates) && protocol == "tcp" {
		state = tcpStates[s.State]
	}
	address := func(ip net.IP, port uint16) string { return net.JoinHostPort(ip.String(), strconv.Itoa(int(port))) }
	return fmt.Sprintf("%s %s %s %s queued %d in, %d out\n", protocol, state, address(s.ID.Source, s.ID.SourcePort),
		address(s.ID.Destination, s.ID.DestinationPort), s.RQueue, s.WQueue)
}

func dumpAddresses(context.Context) ([]byte, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, link := range links {
		all, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			lines = append(lines, link.Attrs().Name+" "+a.IPNet.String()+"\n")
		}
	}
	routes, err := localRoutes()
	if err != nil {
		return nil, err
	}
	lines = append(lines, routes...)
	return sorted(lines), nil
}

// localRoutes are the routes that make addresses local without a device, as the bundled proxier does.
func localRoutes() (lines []string, err error) {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	for _, r := range routes {
		if r.Protocol != unix.RTPROT_KERNEL && r.Dst != nil {
			lines = append(lines, fmt.Sprintf("local route %s, protocol %d\n", r.Dst, r.Protocol))
		}
	}
	return lines, nil
}
