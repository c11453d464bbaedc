package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// chains are the places of a node where a rule can be.
var chains = map[string]string{
	"in":      "type filter hook prerouting priority -310", // before conntrack and every proxy
	"tracked": "type filter hook prerouting priority -150", // after conntrack
	"into":    "type nat hook prerouting priority -110",
	"input":   "type filter hook input priority -310", // before IPVS
	"output":  "type filter hook output priority -310",
	"out":     "type filter hook postrouting priority 310", // after every proxy, with the addresses that the client sees
}

// rule adds a rule at the fault's time, and removes it again. A rule that begins with ip6 is one of IPv6.
func (i *injection) rule(f fault) error {
	name, rule, _ := strings.Cut(f.argument, " ")
	chain, found := chains[name]
	if !found {
		return fmt.Errorf("--fault: no chain %q for a rule", name)
	}
	table := "ip faulty"
	if strings.HasPrefix(rule, "ip6 ") {
		table = "ip6 faulty"
	}
	go func() {
		i.sleepUntil(f.after)
		i.failed(f, nft(fmt.Sprintf("add table %[1]s\nadd chain %[1]s %[2]s { %[3]s; }\nadd rule %[1]s %[2]s %[4]s\n", table, name, chain, rule)))
		time.Sleep(f.lasts)
		i.failed(f, nft("delete table "+table+"\n"))
	}()
	return nil
}

// takeTable deletes a table of another program, if it exists, every 5 s until the fault's end. The argument names it.
func (i *injection) takeTable(f fault) error {
	if family, name, _ := strings.Cut(f.argument, " "); family == "" || name == "" {
		return fmt.Errorf("--fault: %q is not FAMILY TABLE", f.argument)
	}
	go func() {
		for at := f.after; at < f.after+f.lasts; at += 5 * time.Second {
			i.sleepUntil(at)
			i.failed(f, nft(fmt.Sprintf("add table %[1]s\ndelete table %[1]s\n", f.argument)))
		}
	}()
	return nil
}

// delay delays a share of the packets that the node sends, and ends at the fault's end.
func (i *injection) delay(f fault) error {
	var delay string
	var percent float32
	if _, err := fmt.Sscan(f.argument, &delay, &percent); err != nil {
		return fmt.Errorf("--fault: %q is not DELAY PERCENT: %w", f.argument, err)
	}
	latency, err := time.ParseDuration(delay)
	if err != nil {
		return fmt.Errorf("--fault: %w", err)
	}
	go func() {
		i.sleepUntil(f.after)
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			i.failed(f, err)
			return
		}
		// netem sends the packets that it reorders at once, and delays the others.
		attributes := netlink.NetemQdiscAttrs{Latency: uint32(latency.Microseconds()), Limit: 1 << 16}
		if percent < 100 {
			attributes.ReorderProb, attributes.Gap = 100-percent, 1
		}
		qdisc := netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xfa, 0), Parent: netlink.HANDLE_ROOT}, attributes)
		i.failed(f, netlink.QdiscReplace(qdisc))
		time.Sleep(f.lasts)
		i.failed(f, netlink.QdiscDel(qdisc))
	}()
	return nil
}

// failed logs an error of a fault and ends the program, so that the run fails for another reason than the fault.
func (i *injection) failed(f fault, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "faulty: %s: %v\n", f.kind, err)
		os.Exit(3)
	}
}

// nft applies a ruleset in one transaction.
func nft(ruleset string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(ruleset)
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}
