package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Clean restores the objects of a cluster that runs have changed, and deletes the namespaces of runs, also of runs that were killed.
// It waits at most within for each namespace. report receives a line for each action. The error names what is left.
func Clean(ctx context.Context, l LiveOptions, within time.Duration, report func(string)) error {
	if !l.Named() {
		return Usagef("which cluster? name its kubeconfig with --kubeconfig FILE, or give --in-cluster in a pod")
	}
	c, err := l.Open()
	if err != nil {
		return err
	}
	c.AnnounceSilences(report)
	found, err := restoreAll(ctx, c, l.DryRun, report)
	if errors.As(err, new(net.Error)) { // the other requests would take as long
		return err
	}
	left := []error{err}
	spaces, err := c.Namespaces(ctx)
	if err != nil {
		return errors.Join(append(left, err)...)
	}
	for _, ns := range spaces {
		if l.DryRun {
			report(fmt.Sprintf("%s, made %s", ns.Name, ns.CreationTimestamp.UTC().Format(time.RFC3339)))
			continue
		}
		if err := c.RemoveNamespace(ctx, ns.Name, within); err != nil {
			left = append(left, err)
			continue
		}
		report("deleted the namespace " + ns.Name)
	}
	if len(spaces) == 0 && found == 0 && left[0] == nil {
		report("nothing is left of any run")
	}
	return errors.Join(left...)
}
