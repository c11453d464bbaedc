//go:build netns

package subject

import (
	"context"
	"strings"
	"testing"

	"github.com/hitless/hitless/lab/topology"
)

const (
	someChains = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n:LAB - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n" +
		"-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-X\n-A KUBE-SVC-X -j RETURN\n-A LAB -j RETURN\nCOMMIT\n"
	someTable = "table ip kube-proxy {\n\tchain services {\n\t\tip daddr 10.96.0.9 counter accept\n\t}\n}\ntable ip lab {\n\tchain own {\n\t}\n}\n"
)

// A flush empties the proxy's rules, leaves all others, and its end restores them.
func TestFlushedRulesAreRestored(t *testing.T) {
	net, err := network()
	if err != nil {
		t.Fatal(err)
	}
	node := net.Nodes[0]
	in := func(input string, program ...string) string {
		t.Helper()
		out, err := runIn(t.Context(), node, input, program...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Cleanup(func() { _, _ = runIn(context.Background(), node, "", "nft", "flush", "ruleset") })
	for _, c := range []struct {
		name      string
		load      func()
		flush     func(context.Context, *topology.Node) (tables, string, error)
		list      []string
		own, kept string // a rule of the proxy, and one of another program
	}{
		{"iptables", func() { in(someChains, "iptables-restore", "--noflush") }, flushChains, []string{"iptables-save", "-t", "nat"}, "-A KUBE-SVC-X -j RETURN", "-A LAB -j RETURN"},
		{"nftables", func() { in(someTable, "nft", "-f", "-") }, flushNFTables, []string{"nft", "list", "ruleset"}, "ip daddr 10.96.0.9", "chain own"},
	} {
		if _, _, err := c.flush(t.Context(), node); err == nil {
			t.Errorf("%s: a flush without a rule of a proxy is no error", c.name)
		}
		c.load()
		content, _, err := c.flush(t.Context(), node)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if rules := in("", c.list...); strings.Contains(rules, c.own) || !strings.Contains(rules, c.kept) {
			t.Errorf("%s: after the flush there are\n%s", c.name, rules)
		}
		if err := content.restore(node); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if rules := in("", c.list...); !strings.Contains(rules, c.own) {
			t.Errorf("%s: after the restoration there are\n%s", c.name, rules)
		}
	}
}
