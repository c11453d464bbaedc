// Faulty is the bundled proxier with injected faults. The suite selfcheck compares reports with them. The flags are those of
// `hitless proxier`, and --fault. The faults are logged to standard error with their times.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hitless/hitless/proxier"
)

func main() {
	var texts []string
	var afterRestart bool
	var c *cobra.Command
	c = proxier.CommandWith(func(parts *proxier.Config) error {
		node, err := c.Flags().GetString("hostname-override")
		if err != nil {
			return err
		}
		kubeconfig, err := c.Flags().GetString("kubeconfig")
		if err != nil {
			return err
		}
		return inject(parts, node, kubeconfig, texts, afterRestart)
	})
	c.Flags().StringArrayVar(&texts, "fault", nil, "NODE:KIND for a permanent fault; NODE:KIND:AFTER:FOR[:ARGUMENT] for a fault "+
		"that happens once, AFTER the start; NODE is * for all")
	c.Flags().BoolVar(&afterRestart, "after-restart", false, "inject the faults that happen once after a restart of the proxier, and not after its first start")
	if err := c.Execute(); err != nil {
		os.Exit(1)
	}
}

// fault is a fault of this node.
type fault struct {
	kind     string
	after    time.Duration // since the start of the program
	lasts    time.Duration
	argument string
	inject   func(*injection, fault) error
}

// injection is what a fault may change.
type injection struct {
	*faulty
	parts            *proxier.Config
	again            bool // a proxier ran on this node before
	node, kubeconfig string
}

// permanent are the kinds of faults that last as long as the program.
var permanent = joined(processFaults, objectFaults, changeFaults, orderFaults)

func joined(lists ...map[string]func(*injection, fault) error) map[string]func(*injection, fault) error {
	all := map[string]func(*injection, fault) error{}
	for _, list := range lists {
		maps.Copy(all, list)
	}
	return all
}

// processFaults are permanent faults of which the suites selfcheck and attacks know the exact effect.
var processFaults = map[string]func(*injection, fault) error{
	// TCP: never deletes a real server.
	"stale-endpoint": func(i *injection, _ fault) error { i.keepTCP = true; return nil },
	// UDP: never deletes a real server or a conntrack entry.
	"udp-left": func(i *injection, _ fault) error { i.keepUDP = true; return nil },
	// TCP: deletes and adds a real server instead of raising its weight.
	"re-add": func(i *injection, _ fault) error { i.readds = true; return nil },
	// The health check passes after the last local endpoint is removed.
	"lying-health": func(i *injection, _ fault) error {
		i.parts.HealthChecks = passing{i.parts.HealthChecks, map[types.NamespacedName]bool{}}
		return nil
	},
	// After a restart of the proxier: changes nothing, and is healthy.
	"dead-again": func(i *injection, _ fault) error { i.dead.Store(i.again); return nil },
	// The program exits at its start with exit code 0.
	"exit": func(*injection, fault) error { fmt.Fprintln(os.Stderr, "no such flag: --foo"); os.Exit(0); return nil },
}

// once are the kinds of faults that begin and end.
var once = map[string]func(*injection, fault) error{
	// Deletes all virtual servers before the start, and delays the start; the first pass adds them again. Only after a restart.
	"flush": func(i *injection, f fault) error {
		if !i.again {
			return nil
		}
		return i.flush(f)
	},
	// Drops new connections without a reply.
	dropNew: (*injection).later,
	// Deletes the real servers, and adds their replacements later.
	halfSync: (*injection).later,
	// Replaces the real servers with another Service's pod.
	wrongBackend: (*injection).later,
	// Changes nothing, and is healthy.
	"dead": func(i *injection, f fault) error { go i.deadFor(f); return nil },
	// The program exits; FOR has no effect.
	"exits": func(i *injection, f fault) error {
		go func() { i.sleepUntil(f.after); os.Exit(1) }()
		return nil
	},
	// Rules of nft in a chain of the node. The argument is `HOOK RULE`, see chains.
	"rule": (*injection).rule,
	// Deletes another program's table again and again. The argument is `FAMILY TABLE`.
	"take-table": (*injection).takeTable,
	// Delays packets that the node sends to the load balancer. The argument is `DELAY PERCENT`.
	"delay": (*injection).delay,
}

const (
	dropNew      = "drop"
	halfSync     = "half-sync"
	wrongBackend = "wrong-backend"
)

// faultsOf returns the faults of a node.
func faultsOf(node string, texts []string) (all []fault, err error) {
	for _, text := range texts {
		words := strings.SplitN(text, ":", 5)
		if len(words) != 2 && len(words) < 4 {
			return nil, fmt.Errorf("--fault %q: give NODE:KIND or NODE:KIND:AFTER:FOR[:ARGUMENT]", text)
		}
		if words[0] != node && words[0] != "*" {
			continue
		}
		f := fault{kind: words[1], inject: permanent[words[1]]}
		if len(words) >= 4 {
			f.inject = once[f.kind]
			if f.after, err = time.ParseDuration(words[2]); err == nil {
				f.lasts, err = time.ParseDuration(words[3])
			}
			if err != nil {
				return nil, fmt.Errorf("--fault %q: %w", text, err)
			}
			f.argument = strings.Join(words[4:], "")
		}
		if f.inject == nil {
			return nil, fmt.Errorf("--fault %q: no such kind; permanent are %s, and AFTER and FOR need %s", text,
				strings.Join(slices.Sorted(maps.Keys(permanent)), ", "), strings.Join(slices.Sorted(maps.Keys(once)), ", "))
		}
		all = append(all, f)
	}
	return all, nil
}

// inject adds the node's faults to the proxier.
func inject(parts *proxier.Config, node, kubeconfig string, texts []string, afterRestart bool) error {
	faults, err := faultsOf(node, texts)
	if err != nil {
		return err
	}
	again, err := startedBefore(node)
	if err != nil {
		return err
	}
	i := &injection{&faulty{Kernel: parts.Kernel, began: monotonic()}, parts, again, node, kubeconfig}
	parts.Kernel = i.faulty
	for _, f := range faults {
		if f.lasts+f.after > 0 && again != afterRestart {
			continue
		}
		if err := f.inject(i, f); err != nil {
			return err
		}
	}
	return nil
}

// startedBefore reports whether a proxier has run on this node before, and stores that in a file.
func startedBefore(node string) (bool, error) {
	mark := filepath.Join(os.TempDir(), "faulty-"+node)
	if _, err := os.Stat(mark); err == nil {
		return true, nil
	}
	return false, os.WriteFile(mark, nil, 0o600)
}
