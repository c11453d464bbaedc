package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab"
	"github.com/hitless/hitless/lab/topology"
)

// Stopped is how a run ends that was to stop and look.
const Stopped = "stopped, as was asked for"

// stopAndLook has the proxies stand still and writes what is in the kernels of the lab, as files of the folder at-T. Until then
// nothing was other than in a run that does not stop; what is done here takes time, which each file tells, and the rest of
// the lab goes on meanwhile.
func stopAndLook(ctx context.Context, l *lab.Lab, r *recorder, now func() time.Duration) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // the end of the scenario is none of this
	defer stop()
	dir := LookDir(r.stopAt)
	for _, n := range l.Net.Nodes {
		if err := l.Proxies.Freeze(n.Name); err != nil {
			r.file(path.Join(dir, n.Name, "proxy.txt"), []byte(err.Error()+"\n")) // most likely it does not run
		}
	}
	logs, _ := filepath.Glob(filepath.Join(stateDir, "logs", "*.log")) // the pattern is none that fails
	for _, file := range logs {
		if text, err := os.ReadFile(file); err == nil {
			r.file(path.Join(dir, "logs", filepath.Base(file)), text)
		}
	}
	places := []*topology.Namespace{l.Net.Client, l.Net.Balancer}
	names := []string{"client", "balancer"}
	for _, n := range l.Net.Nodes {
		places, names = append(places, n.Namespace), append(names, n.Name)
	}
	for i, place := range places {
		for _, v := range views {
			at := now()
			var text []byte
			err := place.Do(func() (err error) {
				text, err = v.show(ctx)
				return err
			})
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound), err == nil && len(text) == 0:
				continue // there is none, or nothing in it
			case err != nil:
				text = append(text, ("reading it failed: " + err.Error() + "\n")...)
			}
			head := fmt.Sprintf("# %s of %s at %.6fs of the run\n", v.what, names[i], at.Seconds())
			r.file(path.Join(dir, names[i], v.name), append([]byte(head), text...))
		}
	}
}

// LookDir is the folder of a run's folder in which is what was there at a time.
func LookDir(at time.Duration) string { return "at-" + at.String() }

// view is one thing to look at in a network namespace. An empty text is none.
type view struct {
	name, what string
	show       func(ctx context.Context) ([]byte, error)
}

var views = []view{
	{"ipvs.txt", "the IPVS table (/proc/net/ip_vs, addresses and ports in hexadecimal)", proc("ip_vs")},
	{"ipvs-connections.txt", "the connections of IPVS (/proc/net/ip_vs_conn)", proc("ip_vs_conn")},
	{"ipset.txt", "the sets", program("/usr/sbin/ipset", "list")},
	{"iptables.txt", "the rules of iptables", program("/usr/sbin/iptables-save")},
	{"nftables.txt", "the rules of nftables", nftRules},
	{"conntrack.txt", "the connection tracking", conntracked},
	{"sockets.txt", "the sockets", sockets},
	{"addresses.txt", "the addresses", addresses},
	{"routes.txt", "the routes (/proc/net/route)", proc("route")},
	{"snmp.txt", "the counters (/proc/net/snmp)", proc("snmp")},
}

// proc is a file of the namespace in which the calling thread is.
func proc(name string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return os.ReadFile("/proc/thread-self/net/" + name) }
}

// program is what a program says, if the guest has it.
func program(words ...string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if _, err := os.Stat(words[0]); err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	}
}

// nftRules are as nft writes them, where the guest has it; otherwise each rule is its expressions.
func nftRules(ctx context.Context) ([]byte, error) {
	text, err := program("/usr/sbin/nft", "list", "ruleset")(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nftExpressions()
	}
	return text, err
}

func nftExpressions() ([]byte, error) {
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

func conntracked(context.Context) ([]byte, error) {
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
	return joined(lines), nil
}

func joined(lines []string) []byte {
	slices.Sort(lines)
	var out bytes.Buffer
	for _, l := range lines {
		out.WriteString(l)
	}
	return out.Bytes()
}

// tcpStates are the states of include/net/tcp_states.h.
var tcpStates = []string{"", "ESTABLISHED", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "CLOSED", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING", "NEW-SYN-RECV"}

func sockets(context.Context) ([]byte, error) {
	var lines []string
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for protocol, list := range map[string]func(uint8) ([]*netlink.Socket, error){"tcp": netlink.SocketDiagTCP, "udp": netlink.SocketDiagUDP} {
			all, err := list(family)
			if err != nil {
				return nil, err
			}
			for _, s := range all {
				state := strconv.Itoa(int(s.State))
				if int(s.State) < len(tcpStates) && protocol == "tcp" {
					state = tcpStates[s.State]
				}
				at := func(ip net.IP, port uint16) string { return net.JoinHostPort(ip.String(), strconv.Itoa(int(port))) }
				lines = append(lines, fmt.Sprintf("%s %s %s %s queued %d in, %d out\n", protocol, state, at(s.ID.Source, s.ID.SourcePort), at(s.ID.Destination, s.ID.DestinationPort), s.RQueue, s.WQueue))
			}
		}
	}
	return joined(lines), nil // in one order, whatever that of the maps
}

func addresses(context.Context) ([]byte, error) {
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
	return joined(lines), nil
}
