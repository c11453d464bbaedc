package run

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Clean deletes the namespaces that runs have made on a cluster, also those of runs that were killed, and waits for each to be
// gone, within at most. It says what it does line by line. The error names what is left.
func Clean(ctx context.Context, l Live, within time.Duration, say func(string)) error {
	if l.Kubeconfig == "" {
		return usagef("which cluster? name its kubeconfig with --kubeconfig FILE")
	}
	c, err := l.open()
	if err != nil {
		return err
	}
	spaces, err := c.Spaces(ctx)
	if err != nil {
		return err
	}
	var left []error
	for _, ns := range spaces {
		if l.DryRun {
			say(fmt.Sprintf("%s, made %s", ns.Name, ns.CreationTimestamp.UTC().Format(time.RFC3339)))
			continue
		}
		if err := c.Remove(ctx, ns.Name, within); err != nil {
			left = append(left, err)
			continue
		}
		say("deleted the namespace " + ns.Name)
	}
	if len(spaces) == 0 {
		say("nothing is left of any run")
	}
	return errors.Join(left...)
}
