// Faulty is the bundled proxier with known faults: a subject whose truth is known, so that the self-check can hold each
// report against it. The flags are those of `hitless proxier`, and --fault; the truth goes to standard error.
package main

import (
	"fmt"
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
	var c *cobra.Command
	c = proxier.CommandWith(func(parts *proxier.Config) error {
		node, err := c.Flags().GetString("hostname-override")
		if err != nil {
			return err
		}
		return spoil(parts, node, texts)
	})
	c.Flags().StringArrayVar(&texts, "fault", nil, "NODE:KIND for what is always wrong; NODE:KIND:AFTER:FOR for what "+
		"happens once, after the proxier was started again; NODE is * for all")
	if err := c.Execute(); err != nil {
		os.Exit(1)
	}
}

// fault is one that this node has.
type fault struct {
	kind   string
	after  time.Duration // since the start of the program
	lasts  time.Duration // 0 for ever
	always bool
}

// The kinds of fault.
const (
	flushAtStart = "flush"          // all virtual servers are deleted at a restart, and come back with the first pass
	dropNew      = "drop"           // new connections are dropped without a word
	halfSync     = "half-sync"      // the real servers are deleted; those that should replace them come later
	wrongBackend = "wrong-backend"  // another Service's pod instead of its own
	staleTCP     = "stale-endpoint" // TCP: no real server is ever taken out
	staleUDP     = "udp-left"       // UDP: no real server is ever taken out, no flow ever forgotten
	readds       = "re-add"         // TCP: a real server that is wanted again is deleted and, a moment later, added
	lyingHealth  = "lying-health"   // the health check goes on saying that a local endpoint is there
)

// faultsOf reads those of a node.
func faultsOf(node string, texts []string) (all []fault, err error) {
	for _, text := range texts {
		words := strings.Split(text, ":")
		if len(words) != 2 && len(words) != 4 {
			return nil, fmt.Errorf("--fault %q: give NODE:KIND or NODE:KIND:AFTER:FOR", text)
		}
		if words[0] != node && words[0] != "*" {
			continue
		}
		f := fault{kind: words[1], always: len(words) == 2}
		once := []string{flushAtStart, dropNew, halfSync, wrongBackend}
		if slices.Contains(once, f.kind) == f.always {
			return nil, fmt.Errorf("--fault %q: %s happen once, all others always", text, strings.Join(once, ", "))
		}
		if !f.always {
			if f.after, err = time.ParseDuration(words[2]); err == nil {
				f.lasts, err = time.ParseDuration(words[3])
			}
			if err != nil {
				return nil, fmt.Errorf("--fault %q: %w", text, err)
			}
		}
		all = append(all, f)
	}
	return all, nil
}

// spoil puts the node's faults into the proxier.
func spoil(parts *proxier.Config, node string, texts []string) error {
	faults, err := faultsOf(node, texts)
	if err != nil {
		return err
	}
	again, err := startedBefore(node)
	if err != nil {
		return err
	}
	k := &faulty{Kernel: parts.Kernel, began: monotonic()}
	parts.Kernel = k
	for _, f := range faults {
		switch {
		case f.kind == lyingHealth:
			parts.HealthChecks = lying{parts.HealthChecks, map[types.NamespacedName]bool{}}
		case f.kind == readds:
			k.readds = true
		case f.kind == staleTCP:
			k.keepTCP = true
		case f.kind == staleUDP:
			k.keepUDP = true
		case f.always:
			return fmt.Errorf("--fault: no fault is called %q", f.kind)
		case again && f.kind == flushAtStart:
			if err := k.flush(f); err != nil {
				return err
			}
		case again:
			go k.once(f)
		}
	}
	return nil
}

// startedBefore reports whether a proxier has run on this node before, and remembers that one has.
func startedBefore(node string) (bool, error) {
	mark := filepath.Join(os.TempDir(), "faulty-"+node)
	if _, err := os.Stat(mark); err == nil {
		return true, nil
	}
	return false, os.WriteFile(mark, nil, 0o600)
}
