//go:build lab

package kernels

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/suites"
)

// network returns the state of the calling thread's network namespace that a lab would change: links, addresses, routes, settings,
// and nftables rules, which only root may read.
func network() (string, error) {
	var text strings.Builder
	links, err := netlink.LinkList()
	for _, link := range links {
		fmt.Fprintln(&text, "link", link.Attrs().Name, link.Type(), link.Attrs().HardwareAddr)
		addresses, listErr := netlink.AddrList(link, unix.AF_INET)
		err = errors.Join(err, listErr)
		for _, a := range addresses {
			fmt.Fprintln(&text, "address", a.IPNet)
		}
	}
	routes, listErr := netlink.RouteList(nil, unix.AF_INET)
	err = errors.Join(err, listErr)
	for _, r := range routes {
		fmt.Fprintln(&text, "route", r)
	}
	if os.Geteuid() == 0 {
		rules, listErr := exec.Command("/usr/sbin/nft", "--stateless", "list", "ruleset").Output()
		err = errors.Join(err, listErr)
		text.Write(rules)
	}
	err = errors.Join(err, filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
		// The number of tracked connections changes on its own.
		if err != nil || d.IsDir() || d.Name() == "nf_conntrack_count" {
			return err
		}
		if value, err := os.ReadFile(path); err == nil { // some settings are write-only
			fmt.Fprintf(&text, "%s %q\n", path, value)
		}
		return nil
	}))
	return text.String(), err
}

// The red twin of the spec that the run does not change the host's network.
var _ = Describe("the comparison of networks", suites.Host, func() {
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"a link", func() error {
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "fabric"}})
		}},
		{"a setting", func() error {
			const file = "/proc/sys/net/ipv4/ip_forward"
			value, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			other := "1" // a namespace begins with the host's value, which is 1 on many hosts
			if strings.TrimSpace(string(value)) == other {
				other = "0"
			}
			return os.WriteFile(file, []byte(other), 0)
		}},
		{"a rule", func() error { return exec.Command("/usr/sbin/nft", "add", "table", "ip", "kube-proxy").Run() }},
	} {
		It("finds "+c.what, func() {
			ns, err := topology.NewNamespace("twin")
			if errors.Is(err, unix.EPERM) {
				Skip("only root may create a network namespace outside a user namespace")
			}
			Expect(err).NotTo(HaveOccurred())
			defer ns.Close()
			var before, after string
			Expect(ns.Do(func() error { // on another goroutine, where an assertion would end the program
				var errs [3]error
				before, errs[0] = network()
				errs[1] = c.change()
				after, errs[2] = network()
				return errors.Join(errs[:]...)
			})).To(Succeed())
			Expect(after).NotTo(Equal(before))
		})
	}
})
