//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/proxier/linux"
)

func tryKernel(ctx context.Context, plan Plan, _ *recorder, _ func() time.Duration) error {
	net, err := topology.New(1)
	if err != nil {
		return err
	}
	defer net.Close()
	for need := range strings.SplitSeq(plan.Parameters["need"], ",") {
		if err := tryNeed(ctx, net.Nodes[0], need); err != nil {
			return err
		}
	}
	return nil
}

func tryNeed(ctx context.Context, node *topology.Node, need string) error {
	switch need {
	case "":
		return nil
	case "ipvs":
		k, err := linux.Open(linux.Options{Scheduler: "rr"})
		if err == nil {
			k.Close()
		}
		return err
	case "iptables":
		return errors.Join(
			run(ctx, node, "", "iptables", "-t", "nat", "-A", "POSTROUTING", "-m", "comment", "--comment", "try", "-m", "mark",
				"--mark", "0x1/0x1", "-j", "MASQUERADE", "--random-fully"),
			run(ctx, node, "", "iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-m", "statistic", "--mode", "random",
				"--probability", "0.5", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "DNAT", "--to-destination", "10.244.1.2:80"),
			run(ctx, node, "", "iptables", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "REJECT"))
	case "nftables":
		return run(ctx, node, nftTry, "nft", "-f", "-")
	}
	return fmt.Errorf("there is no test for %q", need)
}

// nftTry has an example of each kind of kube-proxy's rules.
const nftTry = `
table ip try {
	chain one {
		meta l4proto tcp dnat to 10.244.1.2:80
	}
	chain service {
		numgen random mod 2 vmap { 0 : goto one, 1 : goto one }
	}
	map ports {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 192.0.2.1 . tcp . 9 : goto service }
	}
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr . meta l4proto . th dport vmap @ports
		fib daddr type local meta mark set 1
	}
	chain postrouting {
		type nat hook postrouting priority srcnat
		meta mark 1 masquerade fully-random
	}
	chain forward {
		type filter hook forward priority filter
		ct state invalid reject
	}
}
`

// run runs a program on the node.
func run(ctx context.Context, node *topology.Node, input, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := node.Run(cmd); err != nil {
		return fmt.Errorf("trying %s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}
