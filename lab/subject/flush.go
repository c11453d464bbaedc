//go:build linux

package subject

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/hitless/hitless/lab/topology"
	"github.com/hitless/hitless/record"
)

// Flush empties a node's proxy tables without the proxy's knowledge: the IPVS table, the chains of kube-proxy in iptables, its table in
// nftables, or Cilium's map of Services.
// The returned function restores the entries. The error for a described subject of another mode is permanent.
func (f *Fleet) Flush(ctx context.Context, name string) (restore func() error, err error) {
	node, err := f.cfg.Net.Node(name)
	if err != nil {
		return nil, err
	}
	spec := f.spec(name)
	flush, known := flushes[spec.Tables()]
	if !known {
		return nil, fmt.Errorf("emptying the tables is supported in the modes %s and for cilium only, and the subject's mode is %q", strings.Join(Modes(), ", "), spec.Mode)
	}
	content, what, err := flush(ctx, node)
	if err != nil {
		return nil, err
	}
	f.record(name, record.ProxyFlushed, what+" of "+name+" was emptied")
	return func() error {
		f.record(name, record.ProxyRestored, what+" of "+name+" was put back")
		return content.restore(node)
	}, nil
}

// tables is the content of a node's proxy tables before they were emptied.
type tables interface {
	restore(node *topology.Node) error
}

// flushes empties the tables that Spec.Tables names, and tells what was emptied. In mode userspace iptables redirects connections to
// the proxy.
var flushes = map[string]func(ctx context.Context, node *topology.Node) (tables, string, error){
	"ipvs":      flushIPVS,
	"iptables":  flushChains,
	"userspace": flushChains,
	"nftables":  flushNFTables,
	CiliumMaps:  flushServiceMap,
}

// restoration is the input that restores tables: of iptables-restore or nft.
type restoration struct {
	program []string
	text    string
}

type restorations []restoration

func (all restorations) restore(node *topology.Node) error {
	var errs []error
	for _, s := range all {
		_, err := runIn(context.Background(), node, s.text, s.program...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runIn runs a program on a node and returns its output. The error has what the program wrote.
func runIn(ctx context.Context, node *topology.Node, input string, program ...string) (output string, err error) {
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var out, wrong strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := node.Run(cmd); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(program, " "), err, strings.TrimSpace(wrong.String()))
	}
	return out.String(), nil
}

// flushChains empties the chains of kube-proxy in iptables, of both families. The jumps to them stay.
func flushChains(ctx context.Context, node *topology.Node) (tables, string, error) {
	var all restorations
	for _, family := range []string{"iptables", "ip6tables"} {
		rules, err := runIn(ctx, node, "", family+"-save")
		if err != nil {
			return nil, "", err
		}
		empty, full := proxyChains(rules)
		if full == "" {
			continue
		}
		restore := []string{family + "-restore", "--noflush"}
		if _, err := runIn(ctx, node, empty, restore...); err != nil {
			return nil, "", err
		}
		all = append(all, restoration{restore, full})
	}
	if len(all) == 0 {
		return nil, "", errors.New("iptables has no chain of a proxy: there is nothing to empty")
	}
	return all, "each chain of the proxy in iptables", nil
}

// kubeletChains are chains with the prefix KUBE- that are not the proxy's.
var kubeletChains = []string{"KUBE-MARK-DROP", "KUBE-FIREWALL", "KUBE-KUBELET-CANARY"}

// proxyChains returns two inputs of iptables-restore --noflush for the proxy's chains in the output of iptables-save: one that empties
// them, and one that also restores their rules. Both are empty when there are no such chains.
func proxyChains(rules string) (empty, full string) {
	var head, body []string
	end := func() {
		if len(head) > 1 {
			empty += strings.Join(append(head, "COMMIT\n"), "\n")
			full += strings.Join(append(append(slices.Clone(head), body...), "COMMIT\n"), "\n")
		}
		head, body = nil, nil
	}
	for line := range strings.Lines(rules) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			head = []string{line}
		case strings.HasPrefix(line, ":") && isProxyChain(line[1:]):
			chain, _, _ := strings.Cut(line, " ")
			head = append(head, chain+" - [0:0]")
		case strings.HasPrefix(line, "-A ") && isProxyChain(line[len("-A "):]):
			body = append(body, line)
		case line == "COMMIT":
			end()
		}
	}
	return empty, full
}

// isProxyChain reports whether a text begins with the name of a chain of kube-proxy.
func isProxyChain(text string) bool {
	chain, _, _ := strings.Cut(text, " ")
	return strings.HasPrefix(chain, "KUBE-") && !slices.Contains(kubeletChains, chain)
}

// flushNFTables deletes the tables of kube-proxy in nftables.
func flushNFTables(ctx context.Context, node *topology.Node) (tables, string, error) {
	list, err := runIn(ctx, node, "", "nft", "list", "tables")
	if err != nil {
		return nil, "", err
	}
	var all restorations
	for line := range strings.Lines(list) {
		words := strings.Fields(line) // table FAMILY NAME
		if len(words) != 3 || words[2] != KubeProxy {
			continue
		}
		content, err := runIn(ctx, node, "", "nft", "list", "table", words[1], words[2])
		if err != nil {
			return nil, "", err
		}
		if _, err := runIn(ctx, node, "", "nft", "delete", "table", words[1], words[2]); err != nil {
			return nil, "", err
		}
		all = append(all, restoration{[]string{"nft", "-f", "-"}, content})
	}
	if len(all) == 0 {
		return nil, "", errors.New("nftables has no table kube-proxy: there is nothing to empty")
	}
	return all, "each table of the proxy in nftables", nil
}
