// Faulty is the bundled proxier with injected faults. The suite selfcheck compares reports with them. The flags are those of
// `hitless proxier`, and --fault. The faults are logged to standard error with their times.
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
		return inject(parts, node, texts)
	})
	c.Flags().StringArrayVar(&texts, "fault", nil, "NODE:KIND for a permanent fault; NODE:KIND:AFTER:FOR for a fault "+
		"that happens once, after a restart of the proxier; NODE is * for all")
	if err := c.Execute(); err != nil {
		os.Exit(1)
	}
}

// fault is a fault of this node.
type fault struct {
	kind   string
	after  time.Duration // since the start of the program
	lasts  time.Duration // 0 for a permanent fault
	always bool
}

// The kinds of faults.
const (
	flushAtStart = "flush"          // deletes all virtual servers at a restart; the first pass adds them again
	dropNew      = "drop"           // drops new connections without a reply
	halfSync     = "half-sync"      // deletes the real servers, and adds their replacements later
	wrongBackend = "wrong-backend"  // replaces the real servers with another Service's pod
	staleTCP     = "stale-endpoint" // TCP: never deletes a real server
	staleUDP     = "udp-left"       // UDP: never deletes a real server or a conntrack entry
	readds       = "re-add"         // TCP: deletes and adds a real server instead of raising its weight
	wrongHealth  = "lying-health"   // the health check passes after the last local endpoint is removed
	deadAgain    = "dead-again"     // after a restart of the proxier: changes nothing, and is healthy
)

// faultsOf returns the faults of a node.
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
			return nil, fmt.Errorf("--fault %q: %s need AFTER and FOR, and the other kinds have neither", text, strings.Join(once, ", "))
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

// inject adds the node's faults to the proxier.
func inject(parts *proxier.Config, node string, texts []string) error {
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
		case f.kind == wrongHealth:
			parts.HealthChecks = passing{parts.HealthChecks, map[types.NamespacedName]bool{}}
		case f.kind == readds:
			k.readds = true
		case f.kind == staleTCP:
			k.keepTCP = true
		case f.kind == staleUDP:
			k.keepUDP = true
		case f.kind == deadAgain:
			k.dead = again
		case f.always:
			return fmt.Errorf("--fault: unknown kind of fault %q", f.kind)
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

// startedBefore reports whether a proxier has run on this node before, and stores that in a file.
func startedBefore(node string) (bool, error) {
	mark := filepath.Join(os.TempDir(), "faulty-"+node)
	if _, err := os.Stat(mark); err == nil {
		return true, nil
	}
	return false, os.WriteFile(mark, nil, 0o600)
}
