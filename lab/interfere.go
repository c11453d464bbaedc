package lab

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// commandTimeout limits a command on a node.
const commandTimeout = 30 * time.Second

// Command runs a program on a node and returns its output. It is for interventions from outside hitless, such as by
// an administrator; Proxies controls the proxies.
func (l *Lab) Command(ctx context.Context, name string, words ...string) (output string, err error) {
	node, err := l.Net.Node(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = node.Run(cmd)
	return out.String(), err
}

// AddAddress adds an address to the loopback device of a node.
func (l *Lab) AddAddress(name, prefix string) error {
	return l.changeAddress(name, prefix, netlink.AddrAdd)
}

// RemoveAddress removes an address from the loopback device of a node. An address that is not there is an error.
func (l *Lab) RemoveAddress(name, prefix string) error {
	return l.changeAddress(name, prefix, netlink.AddrDel)
}

func (l *Lab) changeAddress(name, prefix string, change func(netlink.Link, *netlink.Addr) error) error {
	node, err := l.Net.Node(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	return node.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("finding the loopback device of %s: %w", name, err)
		}
		if err := change(lo, addr); err != nil {
			return fmt.Errorf("changing the address %s of %s: %w", prefix, name, err)
		}
		return nil
	})
}

// AnswersARP returns the nodes that answer an ARP request of the load balancer for an IPv4 address, sorted by name.
func (l *Lab) AnswersARP(ctx context.Context, address string) ([]string, error) {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return nil, err
	}
	return l.Net.AnswersARP(ctx, addr)
}

// SetSysctl sets a setting of the network of a node. The thread that writes it decides which network namespace that is.
func (l *Lab) SetSysctl(name, setting, value string) error {
	node, err := l.Net.Node(name)
	if err != nil {
		return err
	}
	file := filepath.Join("/proc/sys", strings.ReplaceAll(setting, ".", "/"))
	return node.Do(func() error {
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("setting %s of %s to %q: %w", setting, name, value, err)
		}
		return nil
	})
}
